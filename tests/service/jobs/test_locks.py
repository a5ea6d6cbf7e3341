"""Tests that a device, a part of it and a name have one worker at a time."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from service.errors import DeviceBusy
from service.jobs.devices import MOST_NICE, Foreground, make_room, open_in, open_runner
from service.jobs.locks import DeviceLock, NameLock
from service.store import Database, connect
from tests.service.conftest import NewDatabase
from tuner.errors import DeviceUnavailable
from tuner.runtime.runner import Runner


@pytest.mark.parametrize(
    ("first", "second", "fits"),
    [
        ("cpu", "cpu", False),
        ("cpu", "cpu:0", False),
        ("cpu:0", "cpu", False),
        ("cpu:0", "cpu:0", False),
        ("cpu:0", "cpu:1", True),
        ("cuda:0", "cuda:1", True),
        ("cuda:0", "cuda:0", False),
        ("cpu", "cuda:0", True),
        ("null:0", "null:1", True),
    ],
)
def test_cores_that_overlap_exclude_each_other(
    tmp_path: Path, first: str, second: str, fits: bool
) -> None:
    """All cores exclude each one; two different cores do not; nothing stays behind."""
    one, other = DeviceLock(tmp_path, first), DeviceLock(tmp_path, second)
    one.acquire()
    if fits:
        other.acquire()
        other.release()
    else:
        with pytest.raises(DeviceBusy):
            other.acquire()
    one.release()
    other.acquire()
    other.release()


def test_a_core_that_may_not_be_used_is_refused() -> None:
    """The cores of this process are named, and its own set stays as it was."""
    before = os.sched_getaffinity(0)
    with pytest.raises(DeviceUnavailable, match="usable cores"), open_runner("cpu:999"):
        pass
    assert os.sched_getaffinity(0) == before


def test_what_measures_goes_before_what_prepares() -> None:
    """The child has the niceness of the thread from before its worker became nice."""
    base = os.getpriority(os.PRIO_PROCESS, 0)
    foreground, child = Foreground(3), Runner("null")
    found: list[int] = []

    def work() -> None:
        os.nice(5)
        found.append(os.getpriority(os.PRIO_PROCESS, 0))
        with open_in(foreground, "cpu", lambda _: child) as runner:
            assert runner.toolchain
            found.append(os.getpriority(os.PRIO_PROCESS, child.pid))

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    assert found == [min(base + 5, MOST_NICE), min(base + 3, MOST_NICE)]
    assert os.getpriority(os.PRIO_PROCESS, 0) == base


@pytest.mark.parametrize(
    ("worker", "measure", "added"), [(0, 10, (0, 0)), (3, 10, (3, 3)), (5, 2, (5, 2))]
)
def test_what_measures_is_never_nicer_than_its_worker(
    worker: int, measure: int, added: tuple[int, int]
) -> None:
    """Also where the worker makes no room for others: preparation would go first."""
    base = os.getpriority(os.PRIO_PROCESS, 0)
    found: list[int] = []

    def work() -> None:
        foreground = make_room(worker_niceness=worker, measure_niceness=measure)
        found.append(os.getpriority(os.PRIO_PROCESS, 0))
        found.append(foreground.call(lambda: os.getpriority(os.PRIO_PROCESS, 0)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [min(base + more, MOST_NICE) for more in added]


def test_a_core_is_kept_to_while_its_device_is_open() -> None:
    """By the thread that prepares, too: on others somebody else may measure."""
    before = os.sched_getaffinity(0)
    core = min(before)
    with open_in(Foreground(0), f"cpu:{core}", lambda _: Runner("null")) as runner:
        assert os.sched_getaffinity(0) == {core}
        assert runner.device_name
    assert os.sched_getaffinity(0) == before


def test_an_error_of_the_device_is_the_callers() -> None:
    """It is raised where the device was asked, and the thread serves on."""
    foreground = Foreground(0)
    with pytest.raises(DeviceUnavailable, match="999"), open_in(foreground, "cpu:999"):
        pass
    with pytest.raises(ZeroDivisionError):
        foreground.call(lambda: 1 // 0)
    assert foreground.call(lambda: 1) == 1


def test_a_name_is_held_by_one_host(postgres: NewDatabase) -> None:
    """A second worker of the name is refused, until the first lets go."""
    url = postgres()
    here, there = connect(url), connect(url)
    first, second = NameLock(here.claim, "h/cpu"), NameLock(there.claim, "h/cpu")
    first.acquire()
    with pytest.raises(DeviceBusy, match="of this name"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()
    here.close()
    there.close()


def test_on_one_host_files_are_enough(database: Database) -> None:
    """SQLite has no such locks, and needs none."""
    NameLock(database.claim, "h/cpu").acquire()
    NameLock(database.claim, "h/cpu").acquire()
