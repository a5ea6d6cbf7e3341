"""Compiled kernels that the next process finds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tuner.plan import Argument, Source
from tuner.runtime import compiled
from tuner.runtime.canary import sing
from tuner.runtime.compiled import CompiledStore
from tuner.runtime.opencl import OpenCLBackend

_OPTIONS = ("-cl-std=CL3.0",)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that the first entry makes."""
    return tmp_path / "cache" / "compiled"


def _store(folder: Path, *identity: str) -> CompiledStore:
    return CompiledStore(folder, identity or ("compiler 1", "processor"))


def test_an_entry_is_found_again_and_by_nothing_else(folder: Path) -> None:
    """Another text, option, compiler or way to cut the words finds nothing."""
    _store(folder, "a", "b").store("text", _OPTIONS, b"code")
    assert _store(folder, "a", "b").load("text", _OPTIONS) == b"code"
    assert _store(folder, "a", "b").load("text ", _OPTIONS) is None
    assert _store(folder, "a", "b").load("text", ()) is None
    assert _store(folder, "a", "c").load("text", _OPTIONS) is None
    assert _store(folder, "ab").load("text", _OPTIONS) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: b"",
        lambda whole: whole[:-1],
        lambda whole: whole[:-1] + bytes([whole[-1] ^ 1]),
        lambda whole: b"x" + whole[1:],
        lambda whole: whole + b"more",
    ],
    ids=["empty", "short", "flipped", "other", "longer"],
)
def test_a_damaged_entry_is_a_miss_and_goes(folder: Path, damage: object) -> None:
    """What is not what was written is never run, and is made again."""
    store = _store(folder)
    store.store("text", _OPTIONS, b"machine code")
    (path,) = folder.iterdir()
    assert callable(damage)
    path.write_bytes(damage(path.read_bytes()))
    assert store.load("text", _OPTIONS) is None
    assert not path.exists()
    store.store("text", _OPTIONS, b"machine code")
    assert store.load("text", _OPTIONS) == b"machine code"


@pytest.mark.parametrize("rights", [0o770, 0o707, 0o777])
def test_a_folder_that_others_may_write_is_not_used(folder: Path, rights: int) -> None:
    """Nobody else gets code into this user's processes."""
    store = _store(folder)
    store.store("text", _OPTIONS, b"code")
    folder.chmod(rights)
    assert store.load("text", _OPTIONS) is None
    store.store("other", _OPTIONS, b"code")
    assert len(list(folder.iterdir())) == 1


def test_the_folder_is_for_its_user_alone(folder: Path) -> None:
    """Neither the folder nor an entry can be read by others."""
    _store(folder).store("text", _OPTIONS, b"code")
    (path,) = folder.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert path.stat().st_mode & 0o077 == 0


def test_where_nothing_can_be_kept_nothing_fails(tmp_path: Path) -> None:
    """Without a folder, or with a file in its place, every entry is a miss."""
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    for store in (CompiledStore(None, ()), _store(blocked), _store(blocked / "x")):
        store.store("text", _OPTIONS, b"code")
        assert store.load("text", _OPTIONS) is None
    assert blocked.read_text() == "in the way"


def test_a_full_folder_drops_what_was_not_used_for_longest(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry that was read since stays; the rest goes down to the kept share."""
    store = _store(folder)
    for number in range(8):
        store.store(str(number), _OPTIONS, bytes(948))  # and 52 of head
        (path,) = (p for p in folder.iterdir() if p.stat().st_mtime > 8)
        os.utime(path, (number, number))
    assert store.load("0", _OPTIONS)
    monkeypatch.setattr(compiled, "LIMIT_BYTES", 6000)
    fresh = _store(folder)
    fresh.store("new", _OPTIONS, bytes(948))
    left = [n for n in (*map(str, range(8)), "new") if fresh.load(n, _OPTIONS)]
    assert left == ["0", "5", "6", "7", "new"]


def _fill(value: int) -> Source:
    return Source(
        language="opencl",
        text=f"kernel void fill(global int *y) {{ y[get_global_id(0)] = {value}; }}",
        entry="fill",
        arguments=(Argument(tensor="y", is_output=True),),
        grid=(1, 1, 1),
        block=(16, 1, 1),
    )


def _run(backend: OpenCLBackend, source: Source) -> list[int]:
    memory = backend.allocate(64)
    backend.elapsed(backend.bind(source, [memory]), 1)
    result = np.zeros(16, np.int32)
    backend.read(memory, result)
    return sorted(set(result.tolist()))


@pytest.fixture
def backends(opencl: OpenCLBackend, folder: Path) -> Sequence[OpenCLBackend]:
    """Two processes' worth of one device."""
    return [OpenCLBackend(folder=lambda: folder) for _ in range(2)]


def test_the_second_process_runs_what_the_first_compiled(
    backends: Sequence[OpenCLBackend], folder: Path
) -> None:
    """Shown by an entry that holds another kernel's code: that is what runs."""
    first, second = backends
    assert _run(first, _fill(5)) == [5]
    (five,) = folder.iterdir()
    assert _run(first, _fill(7)) == [7]
    (seven,) = set(folder.iterdir()) - {five}
    five.write_bytes(seven.read_bytes())
    assert _run(second, _fill(5)) == [7]


def test_code_that_the_driver_refuses_is_compiled_again(
    backends: Sequence[OpenCLBackend], folder: Path
) -> None:
    """Whole by its digest and yet no program: a miss, replaced by a good entry."""
    first, second = backends
    first._compiled.store(_fill(5).text, _OPTIONS, b"no machine code at all")
    (path,) = folder.iterdir()
    before = path.read_bytes()
    assert _run(second, _fill(5)) == [5]
    assert path.read_bytes() != before
    sing(second)
