"""Several peppers: each digest has a pepper, so that peppers can be replaced."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

FACT = "pepper"  # the id of the only pepper before this step
TABLES = ("key_secrets", "sessions")


def upgrade() -> None:
    """Add the table and the columns, and move the fact into them."""
    row_id = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "peppers",
        sa.Column("id", row_id, sa.Identity(), nullable=False),
        sa.Column("pepper_id", sa.Text, nullable=False),
        sa.Column("current_from_ms", sa.BigInteger, nullable=False),
        sa.Column("retired_at_ms", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name="peppers_pk"),
        sa.UniqueConstraint("pepper_id", name="peppers_pepper_id_uq"),
    )
    for table in TABLES:
        op.add_column(table, sa.Column("pepper_id", sa.Text, nullable=False, server_default=""))
    op.add_column("key_secrets", sa.Column("rehashed_at_ms", sa.BigInteger))
    facts = sa.table("facts", sa.column("name", sa.Text), sa.column("value", sa.Text))
    known = sa.select(facts.c.value).where(facts.c.name == FACT)
    peppers = sa.table("peppers", sa.column("pepper_id"), sa.column("current_from_ms"))
    op.execute(
        peppers.insert().from_select(
            ["pepper_id", "current_from_ms"], known.add_columns(sa.literal(0, sa.BigInteger))
        )
    )
    for name in TABLES:
        rows = sa.table(name, sa.column("pepper_id", sa.Text))
        value = sa.func.coalesce(known.scalar_subquery(), "")
        op.execute(rows.update().values(pepper_id=value))
    op.execute(facts.delete().where(facts.c.name == FACT))


def downgrade() -> None:
    """Restore the fact, with the current pepper, and drop the rest."""
    op.execute(
        "INSERT INTO facts (name, value) "
        "SELECT 'pepper', pepper_id FROM peppers ORDER BY id DESC LIMIT 1"
    )
    op.drop_column("key_secrets", "rehashed_at_ms")
    for table in TABLES:
        op.drop_column(table, "pepper_id")
    op.drop_table("peppers")
