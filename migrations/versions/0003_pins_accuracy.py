"""Pinned plans, and how accurate predictions were.

Revision: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "plan_pins",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("actor", sa.String(length=100), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["key"], ["plans.key"], name=op.f("fk_plan_pins_key_plans")
        ),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_plan_pins")),
    )
    op.create_table(
        "accuracy_runs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("target", sa.String(length=100), nullable=False),
        sa.Column("host", sa.String(length=200), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("summary", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_accuracy_runs")),
    )
    with op.batch_alter_table("accuracy_runs", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_accuracy_runs_target"), ["target"], unique=False
        )


def downgrade() -> None:
    op.drop_table("accuracy_runs")
    op.drop_table("plan_pins")
