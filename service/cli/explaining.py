"""Why two nodes share a kernel or not, and what the other choice would cost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli import anatomy, inputs, output, planning
from service.cli.exits import BadArgument
from service.cli.planning import AsJson, ModelPath, OptionsText, Shapes, Target
from service.dashboard.formats import duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from service.jobs.planning import Prepared


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(
        epilog="Example: fuseplan explain model.onnx --target sm_90\n\n"
        "Example: fuseplan explain model.onnx norm1 gelu --json\n\n"
        "Example: fuseplan explain model.onnx --sensitivity"
    )(explain)


def explain(
    model: ModelPath,
    a: Annotated[str, typer.Argument(metavar="[A", help="Name or id of a node.")] = "",
    b: Annotated[str, typer.Argument(metavar="B]", help="Name or id of another.")] = "",
    target: Target = "cpu",
    shape: Shapes = None,
    options: OptionsText = "{}",
    sensitivity: Annotated[
        bool,
        typer.Option("--sensitivity", help="Which device numbers the plan hangs on."),
    ] = False,
    time_limit: Annotated[
        float, typer.Option("--time-limit", min=1.0, help="Seconds for --sensitivity.")
    ] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Say whether two nodes share a kernel, and what the other choice would cost.

    Without nodes: a line for each edge of the graph, fused or cut, and why.
    With --sensitivity: the smallest change of each number of the device that changes
    which kernels the plan has.
    """
    if sensitivity and a:
        raise BadArgument(
            "--sensitivity", "is about the whole plan", hint="leave the nodes out"
        )
    if a and not b:
        raise BadArgument(
            "A B", "two nodes are needed", hint="name another, or none for all edges"
        )
    given = inputs.json_object("--options", options)
    prepared = inputs.read_model(model, target, shape or (), given)
    if sensitivity:
        _doubt(prepared, time_limit, as_json=as_json)
        return
    if not a:
        _explain_all(prepared, as_json=as_json)
        return
    told = explanation(prepared, a, b)
    if as_json:
        output.emit(told)
    else:
        _show(told)


def _explain_all(prepared: Prepared, *, as_json: bool) -> None:
    """Print every edge."""
    planned = planning.make(prepared)
    found, side_by_side = anatomy.edges(planned), anatomy.parallel(planned)
    if as_json:
        output.emit({"edges": found, "side_by_side": side_by_side})
    else:
        anatomy.show_edges(found, side_by_side)


def _doubt(prepared: Prepared, time_limit: float, *, as_json: bool) -> None:
    """Print what the partition hangs on."""
    from dataclasses import asdict
    from time import monotonic

    from tuner.sensitivity import sensitivity

    found = sensitivity(
        prepared.model,
        prepared.device,
        prepared.options,
        monotonic,
        time_limit_seconds=time_limit,
    )
    if as_json:
        output.emit(
            {
                "target": dict(prepared.key.target),
                "numbers": [asdict(one) for one in found],
            }
        )
        return
    output.table(
        ("number", ">value", ">changes at", ">kernels", ">new"),
        [
            (
                one.number,
                f"{one.value:.4g}",
                _factor(one.factor) if one.examined else "no time",
                f"{one.kernels_before} -> {one.kernels_after}",
                str(one.new_kernels),
            )
            for one in found
        ],
    )


def _factor(factor: float | None) -> str:
    """A factor as people say it."""
    if factor is None:
        return "never"
    return f"x {factor:.2f}" if factor >= 1 else f"/ {1 / factor:.2f}"


def explanation(prepared: Prepared, a: str, b: str) -> dict[str, Any]:
    """Compare the plan with the best one in which the choice is the other one."""
    from service.jobs import explaining
    from service.jobs.opposite import opposite
    from tuner.errors import ConstraintsUnsatisfiable
    from tuner.plan import Pin

    made = planning.make(prepared)
    names = prepared.model.names
    parts = [explaining.parts(made.stored, names, name) for name in (a, b)]
    if parts[0] == parts[1]:
        raise BadArgument(
            "A B", f"{a} and {b} are one node of the plan", hint="name two nodes"
        )
    nodes = explaining.pair(made.stored, *parts)
    fused = bool(explaining.explain(made.stored, *nodes)["fused"])
    told: dict[str, Any] = {
        "a": a,
        "b": b,
        "fused": fused,
        "kernels": {
            name: explaining.kernels(made.stored, each)
            for name, each in zip((a, b), parts, strict=True)
        },
        "objective_seconds": made.plan.partition.objective_seconds,
        "other_objective_seconds": None,
        "reason": explaining.no_choice(made.stored, *nodes),
    }
    if told["reason"]:
        return told
    pin = Pin(fuse=not fused, nodes=nodes)
    options = replace(prepared.options, pins=(*prepared.options.pins, pin))
    try:
        other = planning.make(replace(prepared, options=options))
    except ConstraintsUnsatisfiable as error:
        return {**told, "reason": error.problem}
    seconds = other.plan.partition.objective_seconds
    reason = opposite(made.stored, other.stored, nodes)
    return {**told, "other_objective_seconds": seconds, "reason": reason}


def _show(told: Mapping[str, Any]) -> None:
    a, b, kernels = told["a"], told["b"], told["kernels"]
    if told["fused"]:
        shared = [name for name in kernels[a] if name in kernels[b]]
        output.line(f"{a} and {b} share {', '.join(shared)}.")
    else:
        first, second = (", ".join(kernels[name]) or "no kernel" for name in (a, b))
        output.line(f"{a} is in {first}, {b} in {second}.")
    verb = "apart" if told["fused"] else "in one kernel"
    other = told["other_objective_seconds"]
    if other is None:
        output.line(f"They cannot be {verb}: {told['reason']}.")
        return
    more = other - told["objective_seconds"]
    output.line(
        f"With them {verb} the best plan takes {duration(other)}, "
        f"{duration(abs(more))} {'more' if more >= 0 else 'less'}: {told['reason']}."
    )
