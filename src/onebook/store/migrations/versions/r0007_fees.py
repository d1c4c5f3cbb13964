"""Taker fees per key."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, empty for all keys."""
    op.add_column("keys", sa.Column("fees", sa.Text, nullable=False, server_default="{}"))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("keys", "fees")
