"""Why two nodes share a kernel or not, and what the other choice would cost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli import inputs, output, planning
from service.cli.planning import AsJson, ModelPath, OptionsText, Shapes, Target
from service.dashboard.formats import duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from service.jobs.planning import Prepared
    from tuner.plan import Plan


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(epilog="Example: fuseplan explain model.onnx norm1 gelu --json")(
        explain
    )


def explain(
    model: ModelPath,
    a: Annotated[str, typer.Argument(metavar="A", help="Name or id of a node.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Name or id of another.")],
    target: Target = "cpu",
    shape: Shapes = None,
    options: OptionsText = "{}",
    as_json: AsJson = False,
) -> None:
    """Say whether two nodes share a kernel, and what the other choice would cost."""
    given = inputs.json_object("--options", options)
    prepared = inputs.read_model(model, target, shape or (), given)
    told = explanation(prepared, a, b)
    if as_json:
        output.emit(told)
    else:
        _show(told)


def explanation(prepared: Prepared, a: str, b: str) -> dict[str, Any]:
    """Compare the plan with the best one in which the choice is the other one."""
    from tuner.errors import ConstraintsUnsatisfiable
    from tuner.plan import Pin

    ours = planning.make(prepared).plan
    nodes = (_node(prepared, ours, a), _node(prepared, ours, b))
    holders = [_kernels(ours, node) for node in nodes]
    fused = bool(set(holders[0]) & set(holders[1]))
    pin = Pin(fuse=not fused, nodes=nodes)
    options = replace(prepared.options, pins=(*prepared.options.pins, pin))
    told: dict[str, Any] = {
        "a": a,
        "b": b,
        "fused": fused,
        "kernels": {a: holders[0], b: holders[1]},
        "objective_seconds": ours.partition.objective_seconds,
        "other_objective_seconds": None,
        "reason": "",
    }
    try:
        other = planning.make(replace(prepared, options=options)).plan
    except ConstraintsUnsatisfiable as error:
        return {**told, "reason": error.problem}
    seconds = other.partition.objective_seconds
    return {**told, "other_objective_seconds": seconds}


def _node(prepared: Prepared, plan: Plan, name: str) -> str:
    """A primitive of the named node: one that a kernel runs and that is no view."""
    model = prepared.model
    meant = model.node_id(name)
    nodes = (model.graph.by_name[meant], *model.graph.nodes)
    own = (node for node in nodes if name in (node.name, *model.names[node.name]))
    run = (n.name for n in own if n.op != "reshape" and _kernels(plan, n.name))
    return next(run, meant)


def _kernels(plan: Plan, node: str) -> list[str]:
    return [kernel.name for kernel in plan.kernels if node in kernel.region.nodes]


def _show(told: Mapping[str, Any]) -> None:
    a, b, kernels = told["a"], told["b"], told["kernels"]
    if told["fused"]:
        shared = [name for name in kernels[a] if name in kernels[b]]
        output.line(f"{a} and {b} share {', '.join(shared)}.")
    else:
        output.line(
            f"{a} is in {', '.join(kernels[a])}, {b} in {', '.join(kernels[b])}."
        )
    verb = "apart" if told["fused"] else "in one kernel"
    other = told["other_objective_seconds"]
    if other is None:
        output.line(f"They cannot be {verb}: {told['reason']}.")
        return
    more = other - told["objective_seconds"]
    output.line(
        f"With them {verb} the best plan takes {duration(other)}, "
        f"{duration(abs(more))} {'more' if more >= 0 else 'less'}."
    )
