"""Exports of exchanges, and budgets over days and months."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "export_jobs",
        sa.Column("exchange", sa.Text, nullable=False),
        sa.Column("environment", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("requested_at_ms", sa.BigInteger, nullable=False),
        sa.Column("changed_at_ms", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("exchange", "environment", "owner", "name", name="export_jobs_pk"),
    )
    op.create_table(
        "budgets",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("uses", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("name", name="budgets_pk"),
    )


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("budgets")
    op.drop_table("export_jobs")
