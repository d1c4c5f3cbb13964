"""Collected transactions: records, what they cover, readings of holdings, data keys, leases."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

TABLES = (
    "collected_readings",
    "collected_ranges",
    "collected_records",
    "collected_lists",
    "data_keys",
    "leases",
)


def upgrade() -> None:
    """Create the tables."""
    row_id = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "collected_lists",
        sa.Column("list_id", row_id, sa.Identity(), nullable=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("environment", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("records", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("list_id", name="collected_lists_pk"),
        sa.UniqueConstraint("account", "environment", "name", name="collected_lists_account_uq"),
    )
    op.create_table(
        "collected_records",
        sa.Column("list_id", sa.BigInteger, nullable=False),
        sa.Column("record_id", sa.Text, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("pending", sa.Boolean, nullable=False),
        sa.Column("sealed", sa.Boolean, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("list_id", "record_id", name="collected_records_pk"),
        sa.ForeignKeyConstraint(
            ["list_id"], ["collected_lists.list_id"], name="collected_records_list_id_fk"
        ),
    )
    op.create_index(
        "collected_records_list_id_ix", "collected_records", ["list_id", "at_ms", "record_id"]
    )
    op.create_table(
        "collected_ranges",
        sa.Column("list_id", sa.BigInteger, nullable=False),
        sa.Column("from_ms", sa.BigInteger, nullable=False),
        sa.Column("to_ms", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("list_id", "from_ms", name="collected_ranges_pk"),
        sa.ForeignKeyConstraint(
            ["list_id"], ["collected_lists.list_id"], name="collected_ranges_list_id_fk"
        ),
    )
    op.create_table(
        "collected_readings",
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("environment", sa.Text, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("sealed", sa.Boolean, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("account", "environment", "at_ms", name="collected_readings_pk"),
    )
    op.create_table(
        "data_keys",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("kek_id", sa.Text, nullable=False),
        sa.Column("wrapped", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("name", name="data_keys_pk"),
    )
    op.create_table(
        "leases",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("until_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", name="leases_pk"),
    )


def downgrade() -> None:
    """Drop the tables."""
    for table in TABLES:
        op.drop_table(table)
