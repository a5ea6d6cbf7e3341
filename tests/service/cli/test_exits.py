"""How commands end."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
import typer

from service.cli import main
from service.cli.exits import BadArgument, CacheMiss, Exit, ServiceDown, report, told
from service.client import ServiceUnavailable
from service.store.errors import StoreUnavailable
from tests.service.cli.conftest import Fuseplan
from tuner import errors

ENDINGS = [
    (BadArgument("--shape", "is wrong"), Exit.USAGE),
    (CacheMiss("key", "nothing stored"), Exit.MISS),
    (ServiceDown("http://x", "is gone"), Exit.SERVICE),
    (ServiceUnavailable("http://x", "is gone"), Exit.SERVICE),
    (StoreUnavailable("db", "locked", "by another"), Exit.SERVICE),
    (StoreUnavailable("db", "corrupt", "not a database"), Exit.SERVICE),
    (errors.InvalidModel("model", "is cut off"), Exit.MODEL),
    (errors.UnsupportedModel("model", "external data"), Exit.MODEL),
    (errors.ModelTooLarge("model", "has 2 GB"), Exit.MODEL),
    (errors.UnboundDimensions("batch", "has no size"), Exit.USAGE),
    (errors.UnknownTarget("moon", "no such device"), Exit.USAGE),
    (errors.InvalidOption("pins", "contradict"), Exit.USAGE),
    (errors.DeviceUnavailable("cuda:0", "no GPU"), Exit.DEVICE),
    (errors.VerificationFailed("plan", "differs"), Exit.VERIFICATION),
    (errors.ConstraintsUnsatisfiable("cap", "too low"), Exit.CONSTRAINTS),
    (errors.InternalError("n0", "a promise was broken"), Exit.UNEXPECTED),
    (KeyboardInterrupt(), Exit.INTERRUPTED),
    (typer.Abort(), Exit.INTERRUPTED),
    (typer.BadParameter("is no number"), Exit.USAGE),
    (httpx.ConnectError("refused"), Exit.UNEXPECTED),
    (ValueError("surprise"), Exit.UNEXPECTED),
]


@pytest.mark.parametrize(("error", "code"), ENDINGS)
def test_every_error_has_its_exit_code(
    error: BaseException, code: Exit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The code is the documented one, and the user sees one line, never a traceback."""
    assert report(error, as_json=False, log=tmp_path / "log") == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "Traceback" not in said.err


@pytest.mark.parametrize(("error", "code"), ENDINGS)
def test_problems_go_to_standard_output_with_json(
    error: BaseException, code: Exit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --json the error is a problem document with a stable code."""
    assert report(error, as_json=True, log=tmp_path / "log") == code
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert {"type", "title", "status", "code", "detail"} <= set(document)
    assert said.err == ""


def test_unexpected_errors_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The traceback goes to the log, and the line says where that is."""
    log = tmp_path / "state" / "fuseplan.log"
    with pytest.raises(ZeroDivisionError) as caught:
        _ = 1 / 0
    assert report(caught.value, as_json=False, log=log) == 1
    assert "Traceback" in log.read_text()
    assert str(log) in capsys.readouterr().err


def test_a_log_that_cannot_be_written_is_no_second_error(tmp_path: Path) -> None:
    """When even the log fails, the command still ends with its code."""
    (tmp_path / "file").write_text("")
    log = tmp_path / "file" / "log"
    assert report(ValueError("surprise"), as_json=False, log=log) == 1


def test_hints_are_told() -> None:
    """A message says where, what, and what to do."""
    problem = told(BadArgument("--shape", "is wrong", hint="--shape batch=1"))
    assert (problem.where, problem.detail, problem.hint) == (
        "--shape",
        "is wrong",
        "--shape batch=1",
    )


def test_wrong_settings_are_a_usage_error(
    fuseplan: Fuseplan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable that cannot be read is named, not traced back."""
    monkeypatch.setenv("FUSEPLAN_PORT", "many")
    ended = fuseplan("db", "upgrade")
    assert ended.code == 2
    assert "port" in ended.err


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["plan", "-h"]])
def test_help_and_version_end_well(words: list[str]) -> None:
    """Asking for help is no error."""
    assert main(words) == 0


@pytest.mark.parametrize("words", [["fly"], ["plan"], ["plan", "a", "b"], ["--fly"]])
def test_wrong_words_are_usage_errors(fuseplan: Fuseplan, words: list[str]) -> None:
    """Unknown commands, options and missing arguments give 2."""
    assert fuseplan(*words).code == 2
