"""Peers in processes of their own, asked by turns while all others are stopped."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.peers import cases
from benchmarks.peers.cases import Case
from benchmarks.peers.contention import SHARE, Others
from tuner.frontend.onnx import read_onnx
from tuner.runtime.bench import interpret

PEERS: Final = ("onnxruntime", "torch", "inductor", "tvm", "jax")
ROOFS: Final = ("copy", "triad")
OURS: Final = "fuseplan"
ROUNDS: Final = 7
SAMPLE_SECONDS: Final = 0.04
_START_SECONDS: Final = 120.0
_LOAD_SECONDS: Final = 240.0
_TURN_SECONDS: Final = 60.0
_ROOT: Final = Path(__file__).parents[2]
_ENVIRONMENT: Final = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(1 << 26),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "THP_MEM_ALLOC_ENABLE": "1",
}
"""Freed blocks stay with the process, on huge pages: no peer pays for page faults."""


class PeerGone(Exception):
    """A peer's process ended or did not answer in time."""


class Peer:
    """A process with one library.

    Attributes:
        name: of the row.
        about: version and setting.
        missing: why the library cannot be had; empty when it can.
    """

    def __init__(self, name: str, python: Path, library: str) -> None:
        self.name = name
        environment = dict(os.environ)
        if library not in ("fuseplan", "triad"):
            environment |= _ENVIRONMENT
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives with the process
        self._process = subprocess.Popen(
            [str(python), "-m", "benchmarks.peers.worker", library],
            cwd=_ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self.about: dict[str, Any] = {}
        self.missing = ""
        try:
            self.about = self._receive(_START_SECONDS)
        except PeerGone as error:
            self.missing = str(error)
        else:
            self.missing = self.about.get("missing", "")
        self.pause()

    def ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Wake the process, ask, and stop it again.

        Raises:
            PeerGone: no answer; the process is killed.
        """
        self._signal(signal.SIGCONT)
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            return self._receive(seconds)
        except BrokenPipeError as error:
            raise PeerGone(f"ended: {self._tail()}") from error
        finally:
            self.pause()

    def pause(self) -> None:
        """Stop it, spinning threads and all."""
        self._signal(signal.SIGSTOP)

    def close(self) -> None:
        """End it."""
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._log.close()

    def _signal(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def _receive(self, seconds: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(seconds):
                self.close()
                raise PeerGone(f"no answer within {seconds:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise PeerGone(f"ended: {self._tail()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def _tail(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace").strip()[-300:]


@dataclass(kw_only=True)
class Row:
    """A case's results.

    Attributes:
        samples: seconds of a call by side, one entry a round.
        loads: by side, how loading went: errors, details, or why it failed.
        others: share of a core that others took, by round that counts.
        repeated: rounds that were taken again.
    """

    case: Case
    moved_bytes: int
    samples: dict[str, list[float]] = field(default_factory=dict)
    loads: dict[str, dict[str, Any]] = field(default_factory=dict)
    others: list[float] = field(default_factory=list)
    repeated: int = 0

    @property
    def contended(self) -> bool:
        """Whether some round that counts was disturbed."""
        return any(share > SHARE for share in self.others)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is measured.

    Attributes:
        rounds: that count.
        repeats: rounds of a case that may be taken again.
        budget_seconds: of device time for tuning our side of a case.
        exactness: of our side.
    """

    rounds: int = ROUNDS
    repeats: int = 7
    budget_seconds: float = 6.0
    exactness: str = "strict"


@contextmanager
def open_peers(python: Path, names: Sequence[str]) -> Iterator[dict[str, Peer]]:
    """All sides, each started while the others are stopped."""
    peers: dict[str, Peer] = {}
    try:
        for name in (OURS, *ROOFS, *names):
            own = name in (OURS, *ROOFS)
            library = "fuseplan" if name == "copy" else name
            peers[name] = Peer(name, Path(sys.executable) if own else python, library)
        yield peers
    finally:
        for peer in peers.values():
            peer.close()


def measure(case: Case, peers: Mapping[str, Peer], effort: Effort) -> Row:
    """Load a case everywhere, check the results, and time what is right by turns."""
    row = Row(case=case, moved_bytes=case.moved_bytes())
    folder = Path(tempfile.mkdtemp(prefix="peers-"))
    try:
        _write(case, folder, effort, row.moved_bytes)
        for name, peer in peers.items():
            row.loads[name] = _load(peer, folder)
        ready = _ready(row, peers)
        _rounds(row, ready, effort)
    finally:
        for name, peer in peers.items():
            if "failed" not in row.loads.get(name, {"failed": ""}):
                _try(peer, {"do": "drop"}, _TURN_SECONDS)
        shutil.rmtree(folder)
    return row


def _try(peer: Peer, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """An answer, a failure in words among them."""
    if peer.missing:
        return {"failed": f"missing: {peer.missing}"}
    try:
        return peer.ask(request, seconds)
    except PeerGone as error:
        peer.missing = str(error)
        return {"failed": str(error)}


def _load(peer: Peer, folder: Path) -> dict[str, Any]:
    place = folder / "copy" if peer.name in ROOFS else folder
    return _try(peer, {"do": "load", "folder": str(place)}, _LOAD_SECONDS)


def _ready(row: Row, peers: Mapping[str, Peer]) -> dict[str, Peer]:
    """The sides whose results are right."""
    found = {}
    limits = _limits(row)
    for name, peer in peers.items():
        loaded = row.loads[name]
        if "failed" in loaded:
            continue
        wrong = [
            f"error {each['error']:.3g} is above {limit:.3g}"
            for each, limit in zip(loaded["errors"], limits, strict=False)
            if not each["error"] <= limit
        ]
        if wrong:
            loaded["failed"] = f"wrong: {wrong[0]}"
        else:
            found[name] = peer
    return found


def _limits(row: Row) -> list[float]:
    """Greatest error of each output: 64 epsilon, or four times the library's."""
    judge = row.loads.get("onnxruntime", {}).get("errors", [])
    known = next(
        (load["errors"] for load in row.loads.values() if load.get("errors")), []
    )
    limits = []
    for number, each in enumerate(known):
        allowed = 64 * float(np.finfo(np.float32).eps) * each["largest"]
        if number < len(judge):
            allowed = max(allowed, 4 * judge[number]["error"])
        limits.append(max(allowed, row.case.steps[number] if row.case.steps else 0.0))
    return limits


def _rounds(row: Row, ready: Mapping[str, Peer], effort: Effort) -> None:
    request = {"do": "sample", "seconds": SAMPLE_SECONDS}
    row.samples = {name: [] for name in ready}
    pids = [peer.pid for peer in ready.values()]
    while len(row.others) < effort.rounds:
        watch = Others(pids)
        taken = {n: _try(peer, request, _TURN_SECONDS) for n, peer in ready.items()}
        share = watch.share()
        lost = [name for name, answer in taken.items() if "failed" in answer]
        for name in lost:
            row.loads[name]["failed"] = taken[name]["failed"]
            row.samples.pop(name)
        ready = {name: peer for name, peer in ready.items() if name not in lost}
        if share > SHARE and row.repeated < effort.repeats:
            row.repeated += 1
            continue
        row.others.append(share)
        for name in ready:
            row.samples[name].append(taken[name]["seconds"])


def _write(case: Case, folder: Path, effort: Effort, moved_bytes: int) -> None:
    """Model, arrays, references and the description that workers read."""
    model = case.model().SerializeToString()
    inputs, weights = dict(case.inputs()), dict(case.weights())
    (folder / "model.onnx").write_bytes(model)
    plain = case.plain_model().SerializeToString()
    (folder / "plain.onnx").write_bytes(plain)
    for name, array in {**inputs, **weights}.items():
        np.save(folder / f"{name}.npy", array)
    imported = read_onnx(model)
    feeds = {**inputs, **imported.values}
    precision = "native" if case.steps else "float64"
    truth = interpret(imported.graph, feeds, precision)
    outputs = list(imported.graph.outputs)
    for name in outputs:
        np.save(folder / f"truth_{name}.npy", truth[name])
    common = {
        "threads": len(os.sched_getaffinity(0)),
        "exactness": effort.exactness,
        "total_bytes": moved_bytes,
    }
    about = {
        **common,
        "name": case.name,
        "inputs": list(inputs),
        "weights": list(weights),
        "outputs": outputs,
        "shapes": [list(truth[name].shape) for name in outputs],
        "kinds": [_kind(imported.graph.types[name].dtype) for name in outputs],
        "settings": cases.settings(case),
        "budget_seconds": effort.budget_seconds,
    }
    (folder / "case.json").write_text(json.dumps(about), encoding="utf-8")
    _write_copy(folder / "copy", moved_bytes, {**common, "budget_seconds": 2.0})


def _kind(dtype: Any) -> str:
    return str(np.dtype(dtype.numpy))


def _write_copy(folder: Path, total_bytes: int, about: Mapping[str, Any]) -> None:
    """What the copy kernel and the triad read."""
    folder.mkdir()
    model = cases.copy_model(total_bytes)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    np.save(folder / "x.npy", np.ones(max(total_bytes // 8, 1), np.float32))
    described = {**about, "outputs": [], "inputs": ["x"]}
    (folder / "case.json").write_text(json.dumps(described), encoding="utf-8")
