"""Commands for pre-tuned packs: pack create, pack apply, pack show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli import inputs, output
from service.cli.planning import AsJson, OptionsText, Shapes, Target
from service.dashboard.formats import count, duration, size

if TYPE_CHECKING:
    from service.cli.packing import Pack

PackPath = Annotated[Path, typer.Argument(metavar="PACK", help="A pack's file.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    packs = typer.Typer(
        help="Kernel runs and plans of a device, ready to use.", no_args_is_help=True
    )
    packs.command(
        "create", epilog="Example: fuseplan pack create model.onnx -o cpu.pack"
    )(create)
    packs.command("apply", epilog="Example: fuseplan pack apply cpu.pack")(apply)
    packs.command("show", epilog="Example: fuseplan pack show cpu.pack --json")(show)
    app.add_typer(packs, name="pack", epilog="Example: fuseplan pack show cpu.pack")


def create(
    output_path: Annotated[
        Path, typer.Option("--output", "-o", help="File that takes the pack.")
    ],
    models: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[MODEL]...", help="Only plans of these models."),
    ] = None,
    target: Target = "cpu",
    shape: Shapes = None,
    options: OptionsText = "{}",
    as_json: AsJson = False,
) -> None:
    """Write the measured plans of a device and the runs of their kernels into a file.

    Without models: everything that was measured for the target.
    """
    from service.cli import packing
    from tuner.pipeline import resolve_target

    asked = inputs.json_object("--options", options)
    device = resolve_target(target).id
    inputs.require_place(output_path)
    inputs.require_models(models or ())
    keys = [
        inputs.read_model(model, target, shape or (), asked).key.key
        for model in models or ()
    ]
    given = inputs.settings()
    with inputs.own_database() as database:
        pack = packing.gather(database, device, keys, given)
    data = packing.write(pack, given)
    inputs.write_bytes(output_path, data)
    told = {"output": str(output_path), "bytes": len(data), **pack.summary()}
    if as_json:
        output.emit(told)
    else:
        output.line(
            f"{output_path}: {len(told['plans'])} plans, {told['measurements']} runs "
            f"of {told['kernels']} kernels, {size(len(data))}"
        )


def apply(path: PackPath, as_json: AsJson = False) -> None:
    """Take a pack's plans over where they are better, and its kernel runs.

    A run of another compiler or driver than this machine's is kept, and never served;
    one that is served is verified before a plan rests on it.
    """
    from service.cli import packing

    pack = _read(path)
    with inputs.own_database() as database:
        told = packing.apply(pack, database)
    if as_json:
        output.emit(told)
        return
    output.line(
        f"{path}: {told['plans_added']} of {told['plans']} plans and "
        f"{told['measurements_added']} of {told['measurements']} kernel runs are new"
    )
    _warn(pack)


def show(path: PackPath, as_json: AsJson = False) -> None:
    """Check a pack, and say what it holds."""
    pack = _read(path)
    told = pack.summary()
    if as_json:
        output.emit(told)
        return
    output.table(
        ("plan", "evidence", ">time"),
        [(p["key"], p["evidence"], duration(p["seconds"])) for p in told["plans"]],
    )
    output.facts(
        {
            "target": told["device"],
            "code generator": f"revision {told['codegen_revision']}",
            "kernels": count(told["kernels"]),
            "kernel runs": count(told["measurements"]),
            "toolchains": _listed(told["toolchains"]),
        }
    )
    _warn(pack)


def _listed(toolchains: dict[str, Any]) -> str:
    return ", ".join(f"{name} ({runs})" for name, runs in toolchains.items())


def _read(path: Path) -> Pack:
    from service.cli import packing

    return packing.read(inputs.read_bytes(path, "pack"), inputs.settings())


def _warn(pack: Pack) -> None:
    if pack.is_stale:
        output.note(
            f"fuseplan: code generator revision {pack.codegen_revision} is not the one "
            "here; nothing of this pack is served (create it again)"
        )
