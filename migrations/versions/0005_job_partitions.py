"""How many distinct partitions a job runs whole.

Revision: 0005
Revises: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("partitions", sa.Integer(), server_default="3", nullable=False)
        )


def downgrade() -> None:
    # A batch would make the table anew, and events refer to its rows.
    op.drop_column("jobs", "partitions")
