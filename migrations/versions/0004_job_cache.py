"""How a job times kernels: with cold or warm caches.

Revision: 0004
Revises: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column(
                "cache", sa.String(length=10), server_default="warm", nullable=False
            )
        )


def downgrade() -> None:
    # A batch would make the table anew, and events refer to its rows.
    op.drop_column("jobs", "cache")
