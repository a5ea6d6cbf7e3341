"""Tests that what is wrong with a command's words is told before any work is done.

The models here are no models: whoever begins to read one ends with exit code 4.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.service.cli.conftest import Fuseplan

NO_FOLDER = "none/x"
WRONG_WITH_MODEL = {
    "plan, options": "plan MODEL --options {",
    "plan, an option": 'plan MODEL --options {"legality":"some"}',
    "plan, a size": "plan MODEL --shape batch=many",
    "plan, a range": "plan MODEL --shape seq=8..1",
    "plan, sizes and a range": 'plan MODEL --shape a=1,b=1..2 --options {"shapes":5}',
    "plan, a range as an option": 'plan MODEL --options {"shapes":{"seq":"1..8"}}',
    "plan, memory": "plan MODEL --memory-cap much",
    "plan, target": "plan MODEL --target nowhere",
    "plan, target of a range": "plan MODEL --target nowhere --shape seq=1..8",
    "plan, rules": "plan MODEL --rules none.toml",
    "lookup, evidence": "lookup MODEL --require more",
    "lookup, target": "lookup MODEL --target nowhere",
    "export, format": "export MODEL -o out --format fly",
    "export, folder": "export MODEL -o FILE/out",
    "export, plan": "export MODEL -o out --plan none",
    "strip, file": f"strip MODEL -o {NO_FOLDER}",
    "fetch, evidence": "fetch MODEL --require more",
    "fetch, folder": "fetch MODEL -o FILE/out/",
    "fetch, file": "fetch MODEL -o FILE/out",
    "fetch, lock": "fetch MODEL --lock none",
    "fetch, one of two": "fetch MODEL none -o out",
    "fetch, two in one": "fetch MODEL MODEL -o out",
    "lock, file": f"lock MODEL -o {NO_FOLDER}",
    "lock, one of two": "lock MODEL none",
    "run, device": "run MODEL --device nowhere",
    "run, plan": "run MODEL --plan none",
    "tune, device": "tune MODEL --device nowhere",
    "tune, number": "tune MODEL --device cpu:first",
    "tune, caches": "tune MODEL --cache hot",
    "explain, one node": "explain MODEL a",
    "explain, nodes": "explain MODEL a b --sensitivity",
    "pack, file": f"pack create MODEL -o {NO_FOLDER}",
    "pack, target": "pack create MODEL -o pack --target nowhere",
}
WRONG_ALONE = {
    "bundle, file": f"bundle export -o {NO_FOLDER}",
    "bundle, evidence": "bundle export -o out --require more",
    "bundle, key": "bundle export -o out --key short",
    "measurements, format": "measurements export -o out --format fly",
    "measurements, folder": "measurements export -o FILE/out",
    "calibrate, device": "calibrate --device nowhere",
    "accuracy, device": "accuracy --device nowhere --target cpu",
    "accuracy, file": f"accuracy -o {NO_FOLDER}",
    "demo, device": "demo --device nowhere",
    "demo, port": "demo --port 70000",
    "serve, device": "serve --device nowhere --port 0",
    "worker, device": "worker --device nowhere",
    "worker, queue of another device": "worker --device null:0 --queue tune.cuda.sm_90",
    "backup, file that is there": "db backup FILE",
    "backup, folder": f"db backup {NO_FOLDER}",
    "export, a key's plan": f"export {'0' * 64} -o out --plan FILE",
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands run in, with a file, and a model that is none."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("{}")
    (tmp_path / "model.onnx").write_bytes(b"\x08\x07garbage")
    return tmp_path


def words_of(text: str) -> list[str]:
    """A command's words, with the files that are there."""
    return text.replace("MODEL", "model.onnx").replace("FILE", "file").split()


def _refuses(fuseplan: Fuseplan, place: Path, text: str) -> None:
    before = set(place.iterdir())
    ended = fuseplan(*words_of(text))
    assert ended.code == 2, ended.err
    assert ended.err.count("\n") == 1
    assert ended.err.rstrip().endswith(")")
    assert set(place.iterdir()) == before


@pytest.mark.parametrize("text", WRONG_WITH_MODEL.values(), ids=list(WRONG_WITH_MODEL))
def test_a_wrong_word_is_told_before_the_model_is_read(
    fuseplan: Fuseplan, place: Path, text: str
) -> None:
    """Exit code 2, one line with what to do, nothing written."""
    _refuses(fuseplan, place, text)


@pytest.mark.parametrize("text", WRONG_ALONE.values(), ids=list(WRONG_ALONE))
def test_a_wrong_word_is_told_before_the_database_is_made(
    fuseplan: Fuseplan, place: Path, text: str
) -> None:
    """The same where no model is given: no database, no device, no service."""
    _refuses(fuseplan, place, text)


def test_a_broken_model_is_the_models_fault(fuseplan: Fuseplan, place: Path) -> None:
    """With right words the same file ends with exit code 4."""
    assert fuseplan(*words_of("plan MODEL")).code == 4


def test_a_device_is_asked_for_by_its_own_name(fuseplan: Fuseplan, place: Path) -> None:
    """Who names no device of a machine is told what devices are called, not targets."""
    for command in ("run", "tune"):
        said = fuseplan(command, "model.onnx", "-d", "h100-sxm").err
        assert "device 'h100-sxm'" in said
        assert "cuda:0" in said
        assert "fuseplan devices" in said
        assert "a100" not in said


def test_a_folder_is_asked_for_by_a_slash(
    fuseplan: Fuseplan, place: Path, model: Path
) -> None:
    """`fetch -o DIR/` makes the folder, and the file in it has the model's name."""
    for output in ("out/", "more/inner/"):
        ended = fuseplan("fetch", model, "-t", "sm_90", "--offline", "-o", output)
        assert ended.code == 0, ended.err
        assert (place / output / f"{model.name}.plan.json").is_file()


def test_a_table_keeps_to_the_columns_that_are_asked_for(
    fuseplan: Fuseplan, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pipe too; without the variable it is wide."""
    for columns in (60, 100):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = fuseplan("doctor").out.splitlines()
        assert lines
        assert max(map(len, lines)) <= columns
