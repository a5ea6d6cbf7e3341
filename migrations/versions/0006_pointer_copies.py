"""A pointer holds a copy of what a lookup of many keys answers with.

Revision: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

INDEX = "ix_plan_pointers_key"
"""PostgreSQL finds a key in it in one page, where the primary key's tree has four."""


def upgrade() -> None:
    # They may be null: programs of before write pointers without a copy.
    op.add_column("plan_pointers", sa.Column("copy_of", sa.Integer(), nullable=True))
    op.add_column(
        "plan_pointers", sa.Column("digest", sa.String(length=64), nullable=True)
    )
    op.add_column(
        "plan_pointers", sa.Column("objective_seconds", sa.Double(), nullable=True)
    )
    op.add_column("plan_pointers", sa.Column("kernels", sa.Integer(), nullable=True))
    op.execute(
        "UPDATE plan_pointers SET (copy_of, digest, objective_seconds, kernels) ="
        " (SELECT id, plan_revisions.digest, plan_revisions.objective_seconds,"
        " plan_revisions.kernels FROM plan_revisions"
        " WHERE plan_revisions.id = plan_pointers.revision_id)"
    )
    if op.get_bind().dialect.name == "postgresql":
        op.create_index(INDEX, "plan_pointers", ["key"], postgresql_using="hash")


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.drop_index(INDEX, "plan_pointers")
    for name in ("kernels", "objective_seconds", "digest", "copy_of"):
        op.drop_column("plan_pointers", name)
