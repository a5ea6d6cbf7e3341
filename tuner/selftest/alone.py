"""Parts of the test in a process of their own: it may hang, crash, or be poisoned.

``python -m tuner.selftest.alone DEVICE WHAT NAME`` prints one line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tuner.errors import TunerError
from tuner.runtime.backend import Backend
from tuner.runtime.devices import open_backend
from tuner.runtime.null import Behaviour, NullBackend
from tuner.runtime.requests import Program
from tuner.selftest import models, peers
from tuner.selftest.subjects import behaviours, target

_ROOT: Final = Path(__file__).resolve().parents[2]
_TAIL: Final = 600


def ask(device: str, what: str, name: str, seconds: float) -> Mapping[str, Any]:
    """Run a part in a child; its end, whatever it was, is an answer.

    Args:
        device: cpu, cuda or null.
        what: "model" or "peer".
        name: which.
        seconds: after this the child and all of its children are killed.
    """
    command = [sys.executable, "-m", "tuner.selftest.alone", device, what, name]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(  # noqa: S603
            command,
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
        try:
            out, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return {"failure": "timeout", "message": f"no answer in {seconds:.0f} s"}
        log.seek(0)
        words = log.read().decode(errors="replace").strip()[-_TAIL:]
    return _answer(out.decode(errors="replace"), process.returncode, words)


def _answer(out: str, code: int, words: str) -> Mapping[str, Any]:
    lines = out.strip().splitlines()
    if code == 0 and lines:
        found: Mapping[str, Any] = json.loads(lines[-1])
        return found
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return {"failure": "runtime", "message": f"the child ended by {how}: {words}"}


def _model(device: str, name: str) -> Mapping[str, Any]:
    model = models.read(name)
    program = models.program_of(model, target(device))
    backend = _backend(device, program)
    try:
        found = models.run(model, program, backend)
    except TunerError:
        # An error of CUDA stays: closing meets it again, and the first says where.
        with contextlib.suppress(TunerError):
            backend.close()
        raise
    backend.close()
    return found


def _backend(device: str, program: Program) -> Backend:
    if device.partition(":")[0] != "null":
        return open_backend(device)
    known: dict[str, Behaviour] = {}
    for step in program.steps:
        if step.source is not None:
            known |= behaviours(*models.generated(step.graph, target(device)))
    return NullBackend(known)


def main(words: Sequence[str]) -> int:
    """The child: one answer on standard output."""
    device, what, name = words
    try:
        run = _model if what == "model" else _peer
        found = run(device, name)
    except TunerError as error:
        found = {"failure": error.code, "message": str(error)}
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


def _peer(device: str, name: str) -> Mapping[str, Any]:
    return peers.run(name, device)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
