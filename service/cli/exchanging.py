"""Commands that exchange kernel runs with other tuners: measurements export, import."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from service.cli import inputs, output
from service.cli.exits import BadArgument, CacheMiss
from service.cli.planning import AsJson, Target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuner.search.exchange import KernelRuns

Format = Literal["kernel-tuner", "t4"]
_MAX_BYTES = 256 * 2**20


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    runs = typer.Typer(help="Kernel runs of this machine.", no_args_is_help=True)
    runs.command(
        "export", epilog="Example: fuseplan measurements export -f t4 -o runs/"
    )(export_runs)
    runs.command(
        "import", epilog="Example: fuseplan measurements import runs/softmax.json"
    )(import_runs)
    app.add_typer(
        runs,
        name="measurements",
        epilog="Example: fuseplan measurements export -o runs/",
    )


def export_runs(
    folder: Annotated[
        Path, typer.Option("--output", "-o", help="Folder: one file for each kernel.")
    ],
    form: Annotated[
        str, typer.Option("--format", "-f", help="kernel-tuner or t4.")
    ] = "kernel-tuner",
    target: Target = "cpu",
    kernel: Annotated[
        list[str] | None, typer.Option("--kernel", help="Only this fingerprint.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write what was measured of each kernel in the format of another tuner."""
    from tuner.pipeline import resolve_target
    from tuner.search.exchange import IMPORTED, runs_of, to_kernel_tuner, to_t4

    write = to_t4 if _format(form) == "t4" else to_kernel_tuner
    device = resolve_target(target)
    inputs.require_place(folder, folder=True)
    own = [r for r in _known(device.id).values() if r.get("toolchain") != IMPORTED]
    found = {
        runs.kernel: runs
        for runs in runs_of(own, device.name)
        if not kernel or runs.kernel in kernel
    }
    if missing := sorted(set(kernel or ()) - set(found)) or (not found and ["any"]):
        raise CacheMiss(
            missing[0],
            f"no kernel run is stored for target {device.id}",
            hint="`fuseplan tune` measures kernels and stores them",
        )
    now = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadArgument(
            str(folder), f"cannot be made: {error.strerror}", hint="choose another -o"
        ) from error
    written = []
    for name, runs in found.items():
        path = folder / f"{name.replace(':', '-')}.json"
        text = json.dumps(write(runs, timestamp=now), indent=1)
        inputs.write_bytes(path, f"{text}\n".encode())
        written.append({"kernel": name, "file": str(path), "runs": len(runs.runs)})
    if as_json:
        output.emit({"format": form, "target": device.id, "kernels": written})
    else:
        output.line(f"{folder}: {len(written)} kernels")


def import_runs(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Kernel Tuner caches, or T4 results."),
    ],
    target: Target = "cpu",
    kernel: Annotated[
        str, typer.Option("--kernel", help="Fingerprint that a file does not name.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Take kernel runs of other tuners over: where later searches begin.

    They are never served as measurements, as nothing says which compiler and driver
    made them. A search of the same kernel, or of one that differs in its extents only,
    tries the fastest schedule among them right after the default.
    """
    from tuner.pipeline import resolve_target

    device = resolve_target(target).id
    known = _known(device)
    read = [(path, _placed(path, _read(path), kernel, known)) for path in paths]
    counts = [(path, runs, _keep(device, runs)) for path, runs in read]
    told = [
        {"file": str(path), "kernel": runs.kernel, "runs": len(runs.runs), "new": new}
        for path, runs, new in counts
    ]
    if as_json:
        output.emit({"target": device, "files": told})
        return
    for row in told:
        output.line(
            f"{row['file']}: {row['new']} of {row['runs']} runs of {row['kernel']} "
            "are new"
        )


def _format(word: str) -> Format:
    for known in get_args(Format):
        if word == known:
            return known  # type: ignore[no-any-return]
    raise BadArgument(
        "--format", f"{word!r} is none of {', '.join(get_args(Format))}", hint="t4"
    )


def _known(device: str) -> Mapping[str, Mapping[str, Any]]:
    from service.cli import kernel_cache
    from service.store import measurements

    if not kernel_cache.is_there():
        return {}
    with inputs.own_database() as database, database.read() as session:
        return measurements.known(session, device, until=measurements.last_id(session))


def _read(path: Path) -> KernelRuns:
    """The runs of a file, whichever of the formats it has.

    Raises:
        BadArgument: it is no JSON object.
        InvalidModel: it is neither a cache nor T4 results.
    """
    from tuner.errors import InvalidModel
    from tuner.search.exchange import from_kernel_tuner, from_t4

    data = inputs.read_bytes(path, "cache or T4 results")
    if len(data) > _MAX_BYTES:
        raise BadArgument(str(path), "is larger than 256 MiB", hint="split it")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise BadArgument(
            str(path), f"is no text: {error.reason}", hint="give a JSON file"
        ) from error
    stored = inputs.json_object(str(path), text)
    if not {"cache", "results"} & set(stored):
        raise BadArgument(
            str(path),
            "is neither a Kernel Tuner cache nor T4 results",
            hint='the one has "cache", the other "results"',
        )
    try:
        return from_t4(stored) if "results" in stored else from_kernel_tuner(stored)
    except InvalidModel as error:
        raise BadArgument(
            str(path), f"{error.where} {error.problem}", hint=error.hint
        ) from error


def _placed(
    path: Path,
    runs: KernelRuns,
    kernel: str,
    known: Mapping[str, Mapping[str, Any]],
) -> KernelRuns:
    """The same runs with a structure, by which searches find them.

    Raises:
        BadArgument: nothing says to which kernel of ours they belong.
    """
    from dataclasses import replace

    name = kernel or runs.kernel
    ours = next(
        (r for r in known.values() if r.get("kernel") == name and r.get("near")), None
    )
    if ours is not None:
        sizes, near = tuple(ours.get("sizes", ())), str(ours["near"])
        return replace(runs, kernel=name, sizes=sizes, near=near)
    if runs.near and not kernel:
        return runs
    raise BadArgument(
        str(path),
        f"nothing here is known of its kernel {name!r}",
        hint="--kernel FINGERPRINT of `fuseplan tune --dry-run --json`, once tuned",
    )


def _keep(device: str, runs: KernelRuns) -> int:
    """Store the runs that are not stored yet; how many."""
    from service.cli import kernel_cache
    from service.store import kernels, measurements
    from service.store.kernels import StoredKernel
    from tuner.document import digest, encode

    hints = {f"imported/{digest(encode(h))}": h for h in runs.as_hints()}
    now = datetime.now(UTC)
    with inputs.own_database() as database:
        with database.read() as session:
            until = measurements.last_id(session)
            held = measurements.known(session, device, until=until)
        new = {key: hint for key, hint in hints.items() if key not in held}
        with database.write() as session:
            family = runs.kernel.partition(":")[0][:30]
            seen = StoredKernel(fingerprint=runs.kernel[:100], family=family)
            kernels.put(session, [seen], now=now)
            rows = [
                kernel_cache.stored(key, device, {**hint, "kernel": seen.fingerprint})
                for key, hint in new.items()
            ]
            measurements.add(session, rows, now=now)
    return len(new)
