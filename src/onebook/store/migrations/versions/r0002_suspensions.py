"""How often an account and a key were suspended or expired: nodes that poll miss none of it."""

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
