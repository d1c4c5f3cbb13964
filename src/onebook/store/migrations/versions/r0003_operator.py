"""Allowance per key, and the audit trail."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column and the table."""
    op.add_column("keys", sa.Column("allowance_bytes", sa.BigInteger))
    row_id = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "changes",
        sa.Column("id", row_id, sa.Identity(), nullable=False),
        sa.Column("changed_at_ms", sa.BigInteger, nullable=False),
        sa.Column("changed_by", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("before", sa.Text, nullable=False),
        sa.Column("after", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="changes_pk"),
    )
    for column in ("changed_at_ms", "subject"):
        op.create_index(f"changes_{column}_ix", "changes", [column])


def downgrade() -> None:
    """Drop both."""
    op.drop_table("changes")
    op.drop_column("keys", "allowance_bytes")
