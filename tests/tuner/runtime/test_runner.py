"""The child process, and what can happen to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from tests.tuner.runtime.graphs import GOOD, exp_add, matmul_add, source
from tests.waiting import until, when_busy
from tuner.errors import DeviceUnavailable, KernelFailed
from tuner.plan import Source
from tuner.runtime import wire
from tuner.runtime.bench import Bench
from tuner.runtime.cuda import device_count
from tuner.runtime.null import NullBackend, NullRunner
from tuner.runtime.requests import MeasureRequest
from tuner.runtime.runner import Runner
from tuner.runtime.server import Desk, reply


def _request(kernel: Source | None, **more: Any) -> MeasureRequest:
    given = {"repeats": 7, "budget_seconds": 0.05, **more}
    return MeasureRequest(graph=exp_add(), source=kernel, **given)


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    """A child with an OpenCL device."""
    started = Runner("cpu")
    try:
        started.__enter__()
    except DeviceUnavailable as error:
        pytest.skip(str(error))
    yield started
    started.close()


def _works(runner: Runner) -> bool:
    return not runner.measure(_request(GOOD)).failure


def test_a_kernel_is_measured_in_another_process(runner: Runner) -> None:
    """Verified samples come back from a process that is not ours."""
    found = runner.measure(_request(GOOD))
    assert not found.failure, found.message
    assert len(found.samples) >= 7
    assert runner.pid != os.getpid()
    assert runner.device_name
    assert runner.toolchain


def test_the_child_lives_on(runner: Runner) -> None:
    """Requests share one child; expected failures do not end it."""
    pid = runner.pid
    wrong = runner.measure(_request(source("o[i] = x[i];")))
    broken = runner.measure(_request(source("o[i] = nonsense;")))
    large = runner.measure(_request(source("o[i] = 0;", count=0, block=1 << 16)))
    kinds = [m.failure for m in (wrong, broken, large)]
    assert kinds == ["correctness", "compile", "resources"]
    assert all(m.seconds == float("inf") and not m.samples for m in (wrong, broken))
    assert wrong.max_abs_error > 0 == broken.max_abs_error
    assert "nonsense" in broken.message
    assert runner.pid == pid


def test_a_kernel_that_never_ends_is_killed(runner: Runner) -> None:
    """After its deadline the child is killed, and a new one sings and works."""
    endless = source("volatile int k = 1; while (k) {} o[i] = k;")
    pid, deaths = runner.pid, runner.deaths
    found = runner.measure(_request(endless, deadline_seconds=1.0))
    assert found.failure == "timeout"
    assert runner.deaths == deaths + 1
    assert _works(runner)
    assert runner.pid != pid


def test_a_kernel_that_crashes_kills_the_child_alone(runner: Runner) -> None:
    """A write far outside of memory is a run-time failure; the next request works."""
    wild = source("o[i + (1L << 40)] = x[i] + y[i];")
    found = runner.measure(_request(wild))
    assert found.failure == "runtime"
    assert "signal" in found.message
    assert not found.contended
    assert _works(runner)


def test_a_child_killed_from_outside_is_replaced(runner: Runner) -> None:
    """Between requests or within one, a dead child costs one measurement at most."""
    os.kill(runner.pid, signal.SIGKILL)
    time.sleep(0.1)
    assert _works(runner)


def test_a_kill_from_outside_is_not_the_kernels_fault(runner: Runner) -> None:
    """The failure is marked as somebody else's, and the next request works."""
    endless = source("volatile int k = 1; while (k) {} o[i] = k;")
    pid = runner.pid
    when_busy(pid, lambda: os.kill(pid, signal.SIGKILL))
    found = runner.measure(_request(endless, deadline_seconds=600.0))
    assert found.failure == "runtime"
    assert found.contended
    assert _works(runner)


def test_too_much_shared_memory_is_a_matter_of_resources(runner: Runner) -> None:
    """A kernel whose block does not fit is refused, and the child lives on."""
    pid = runner.pid
    greedy = source(
        "local float much[1 << 22]; much[get_local_id(0)] = x[i]; "
        "barrier(CLK_LOCAL_MEM_FENCE); o[i] = much[0] + y[i];"
    )
    assert runner.measure(_request(greedy)).failure == "resources"
    assert runner.pid == pid


def test_pairs_come_back_as_pairs(runner: Runner) -> None:
    """Both measurements of a pair, or one failure twice."""
    first, second = runner.measure_pair(_request(GOOD), _request(None))
    assert not first.failure
    assert not second.failure
    bad, other = runner.measure_pair(_request(GOOD), _request(source("o[i] = 1;")))
    assert bad.failure == other.failure == "correctness"


def test_library_calls_are_measured(runner: Runner) -> None:
    """A request without a source runs in the library."""
    request = MeasureRequest(graph=matmul_add(), repeats=7, budget_seconds=0.05)
    assert not runner.measure(request).failure


def test_the_child_dies_with_its_parent(tmp_path: Path) -> None:
    """When the parent is killed, nothing is left behind, even within a kernel."""
    script = tmp_path / "parent.py"
    script.write_text(
        "import sys, time\n"
        "from tuner.runtime.runner import Runner\n"
        "runner = Runner('null')\n"
        "print(runner.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    until(lambda: not _is_running(child))


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_devices_that_are_not_there_are_told_apart() -> None:
    """Opening a missing device is DeviceUnavailable, with the child's own words."""
    if device_count():
        pytest.skip("this machine has a GPU")
    with pytest.raises(DeviceUnavailable, match=r"GPU|cupy"), Runner("cuda"):
        pass
    with pytest.raises(DeviceUnavailable, match="no such device"), Runner("tpu"):
        pass


def test_three_deaths_in_a_row_make_a_device_unhealthy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No canary sings in a child that ends at once; the third child is the last."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(DeviceUnavailable, match=r"unhealthy.*exit code 1"):
        Runner("null").__enter__()


class _Fading(NullBackend):
    """A device that disappears at the first launch of a real kernel."""

    def synchronise(self) -> None:
        """Nothing comes back."""
        raise KernelFailed("null", "the device is gone")


def test_an_error_that_sticks_is_found_out() -> None:
    """After a failed run the canary decides whether the child may live on."""
    request = _request(source("o[i] = 1;", entry="gone"))
    fading = Desk(Bench(_Fading({"gone": lambda arguments: None})))
    first = reply(fading, request)
    assert first.answer.failure == "runtime"
    assert not first.is_healthy
    broken = reply(Desk(Bench(NullBackend())), request)
    assert broken.answer.failure == "compile"
    assert broken.is_healthy


def test_read_only_mappings_travel() -> None:
    """A graph's mappings survive the pipe."""
    value = MappingProxyType({"a": (1, 2)})
    assert wire.decode(wire.encode(value)) == value


def test_recorded_times_repeat() -> None:
    """The runner without a device gives equal answers to equal requests."""
    runner = NullRunner(lambda request: 1e-3, noise=0.05, seed=3)
    first, again = runner.measure(_request(GOOD)), runner.measure(_request(GOOD))
    other = runner.measure(_request(source("o[i] = 1;")))
    assert first == again
    assert first.samples != other.samples
    assert first.low_seconds < 1e-3 * 1.1
    broken = NullRunner(lambda request: float("inf"))
    assert broken.measure(_request(GOOD)).failure == "runtime"
