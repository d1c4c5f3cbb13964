"""The exchange's id of an export."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, empty for all jobs."""
    column = sa.Column("reference", sa.Text, nullable=False, server_default="")
    op.add_column("export_jobs", column)


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("export_jobs", "reference")
