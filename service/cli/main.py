"""The `fuseplan` command: its subcommands, and how each of them ends."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli import (
    build,
    bundles,
    demo,
    explaining,
    machine,
    planning,
    running,
    serving,
    tokens,
)
from service.cli.exits import Exit, report
from service.cli.inputs import log_file

if TYPE_CHECKING:
    from collections.abc import Sequence

app = typer.Typer(
    name="fuseplan",
    help="Finds the cheapest way to cut a tensor graph into fused kernels, "
    "proves how good the cut is, and keeps it.",
    epilog="Example: fuseplan plan model.onnx --target sm_90",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(*, wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        text = version("fuseplan")
    except PackageNotFoundError:
        text = "unpackaged"
    sys.stdout.write(f"fuseplan {text}\n")
    raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=lambda value: _show_version(wanted=value),
            is_eager=True,
            help="Print the version and stop.",
        ),
    ] = False,
) -> None:
    pass


for _group in (
    *(planning, explaining, build, bundles, tokens),
    *(running, serving, machine, demo),
):
    _group.register(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; never a traceback for the user."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    command = typer.main.get_command(app)
    try:
        result = command.main(words, prog_name="fuseplan", standalone_mode=False)
    except BrokenPipeError:
        sys.stderr.close()
        return Exit.UNEXPECTED
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the top of the program
        return report(error, as_json="--json" in words, log=log_file())
    return result if isinstance(result, int) else Exit.OK
