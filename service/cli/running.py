"""Commands that use a device: run a whole plan, and those of `tuning`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli import exchanging, inputs, output, packs, planning, tuning
from service.cli.exits import BadArgument, Exit
from service.cli.planning import AsJson, ModelPath, OptionsText, Shapes
from service.cli.tuning import DeviceName
from service.dashboard.formats import duration, ratio, size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from service.jobs.planning import Prepared
    from tuner.ir.types import Array
    from tuner.plan import Plan


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(epilog="Example: fuseplan run model.onnx --device cpu --verify")(run)
    tuning.register(app)
    packs.register(app)
    exchanging.register(app)


def run(
    model: ModelPath,
    device: DeviceName = "cpu",
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare with ONNX Runtime.")
    ] = False,
    random_weights: Annotated[
        int | None,
        typer.Option("--random-weights", help="Seed of the weights that are left out."),
    ] = None,
    plan: Annotated[
        Path | None, typer.Option("--plan", help="Plan body to run: lookup KEY --json.")
    ] = None,
    shape: Shapes = None,
    options: OptionsText = "{}",
    as_json: AsJson = False,
) -> int:
    """Run a whole plan on a device, and compare it with ONNX Runtime."""
    from service.jobs.planning import target_of
    from tuner.errors import VerificationFailed
    from tuner.execution import run_plan

    given = inputs.json_object("--options", options)
    target = target_of(device).id
    body = None if plan is None else inputs.plan_body(plan)
    prepared = inputs.read_model(model, target, shape or (), given)
    _require_weights(prepared, random_weights)
    chosen = _chosen(prepared, body)
    try:
        report = asdict(
            run_plan(
                prepared.model,
                chosen,
                device=device,
                seed=random_weights or 0,
                verify=verify,
                values=_values(prepared),
            )
        )
    except VerificationFailed as error:
        if not as_json:
            raise
        output.emit({**_failed(chosen), "problem": str(error)})
        return Exit.VERIFICATION
    _show_run(report, as_json=as_json, verify=verify)
    return Exit.VERIFICATION if verify and not report["verified"] else Exit.OK


def _values(prepared: Prepared) -> Mapping[str, Array]:
    return prepared.model.imported.values


def _require_weights(prepared: Prepared, seed: int | None) -> None:
    """A light model runs on random weights only when the user says so."""
    imported = prepared.model.imported
    missing = [w for w in imported.graph.weights if w not in imported.values]
    if missing and seed is None:
        raise BadArgument(
            missing[0],
            f"{len(missing)} weights came without values",
            hint="--random-weights 0 fills them",
        )


def _failed(plan: Plan) -> dict[str, Any]:
    return {
        "verified": False,
        "max_abs_error": None,
        "max_rel_error": None,
        "seconds": None,
        "peak_memory_bytes": plan.memory.peak_bytes,
    }


def _show_run(report: Mapping[str, Any], *, as_json: bool, verify: bool) -> None:
    if as_json:
        output.emit(report)
        return
    verdict = "agrees with ONNX Runtime" if report["verified"] else "differs"
    reference = report.get("reference_seconds")
    facts = {
        "outputs": verdict if verify else "not compared (--verify)",
        **({"largest error": _errors(report)} if verify else {}),
        "time": duration(report["seconds"]),
        "peak memory": size(report["peak_memory_bytes"]),
    }
    if reference:
        facts["ONNX Runtime"] = (
            f"{duration(reference)} ({ratio(reference / report['seconds'])} ours)"
        )
    output.facts(facts)


def _errors(report: Mapping[str, Any]) -> str:
    absolute, relative = report["max_abs_error"], report["max_rel_error"]
    return f"{absolute:.3g} absolute, {relative:.3g} relative"


def _chosen(prepared: Prepared, body: Mapping[str, Any] | None) -> Plan:
    """The plan that a body describes, or else the analytic one."""
    if body is None:
        return planning.make(prepared).plan

    from service.cli import replay

    return replay.plan_of(body, prepared)
