"""Counters of suspensions and expiries, so that nodes that poll miss none."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TABLES = ("accounts", "keys")


def upgrade() -> None:
    """Add the counters."""
    for table in TABLES:
        op.add_column(
            table, sa.Column("suspensions", sa.BigInteger, nullable=False, server_default="0")
        )


def downgrade() -> None:
    """Drop the counters."""
    for table in TABLES:
        op.drop_column(table, "suspensions")
