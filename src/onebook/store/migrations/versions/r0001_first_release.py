"""The schema of the first release: accounts, keys, sessions, usage, exchange credentials."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create all tables."""
    op.create_table(
        "accounts",
        sa.Column("account_id", sa.Text, nullable=False),
        sa.Column("username", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column("changed_at_ms", sa.BigInteger, nullable=False),
        sa.Column("changed_by", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("account_id", name="accounts_pk"),
        sa.UniqueConstraint("username", name="accounts_username_uq"),
    )
    op.create_table(
        "keys",
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("account_id", sa.Text, nullable=False),
        sa.Column("tier", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("prefix", sa.Text, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column("expires_at_ms", sa.BigInteger),
        sa.Column("last_used_at_ms", sa.BigInteger),
        sa.Column("changed_at_ms", sa.BigInteger, nullable=False),
        sa.Column("changed_by", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("key_id", name="keys_pk"),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.account_id"], name="keys_account_id_fk"),
    )
    op.create_table(
        "key_secrets",
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column("retires_at_ms", sa.BigInteger),
        sa.PrimaryKeyConstraint("digest", name="key_secrets_pk"),
        sa.ForeignKeyConstraint(["key_id"], ["keys.key_id"], name="key_secrets_key_id_fk"),
    )
    op.create_table(
        "sessions",
        sa.Column("id", ROW_ID, sa.Identity(), nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column("expires_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="sessions_pk"),
        sa.UniqueConstraint("digest", name="sessions_digest_uq"),
        sa.UniqueConstraint("session_id", name="sessions_session_id_uq"),
        sa.ForeignKeyConstraint(["key_id"], ["keys.key_id"], name="sessions_key_id_fk"),
    )
    op.create_table(
        "usage",
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("period_start_ms", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("key_id", "period_start_ms", name="usage_pk"),
        sa.ForeignKeyConstraint(["key_id"], ["keys.key_id"], name="usage_key_id_fk"),
    )
    op.create_table(
        "usage_batches",
        sa.Column("node_epoch", sa.Text, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("applied_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("node_epoch", "seq", name="usage_batches_pk"),
    )
    op.create_table(
        "credentials",
        sa.Column("exchange", sa.Text, nullable=False),
        sa.Column("environment", sa.Text, nullable=False),
        sa.Column("kek_id", sa.Text, nullable=False),
        sa.Column("ciphertext", sa.LargeBinary, nullable=False),
        sa.Column("nonce", sa.LargeBinary, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("exchange", "environment", name="credentials_pk"),
    )
    op.create_table(
        "facts",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("name", name="facts_pk"),
    )
    for table, column in INDEXES:
        op.create_index(f"{table}_{column}_ix", table, [column])


def downgrade() -> None:
    """Drop all tables, referring tables first."""
    for table in reversed(TABLES):
        op.drop_table(table)


TABLES = (
    "accounts",
    "keys",
    "key_secrets",
    "sessions",
    "usage",
    "usage_batches",
    "credentials",
    "facts",
)
INDEXES = (
    ("accounts", "changed_at_ms"),
    ("keys", "account_id"),
    ("keys", "changed_at_ms"),
    ("key_secrets", "key_id"),
    ("sessions", "key_id"),
    ("sessions", "expires_at_ms"),
    ("usage_batches", "applied_at_ms"),
)
