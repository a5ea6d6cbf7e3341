"""A job counts the workers that began it and did not leave it in order.

Revision: 0007
Revises: 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "jobs",
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
    )


def downgrade() -> None:
    # A batch would make the table anew, and events refer to its rows.
    op.drop_column("jobs", "attempts")
