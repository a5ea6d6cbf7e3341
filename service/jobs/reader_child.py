"""The process that reads and plans models, with as much memory as it is given.

Usage: `python -m service.jobs.reader_child FD MEMORY_BYTES PLAN_SECONDS RULES`, by
`service.jobs.reader` alone. Questions come and answers go as JSON and plain bytes:
whatever a model does to this process, its parent loads no object of it.
"""

from __future__ import annotations

import contextlib
import json
import resource
import sys
import traceback
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any, Final

from service.jobs.planning import Planner, Prepared, Question
from service.jobs.submission import body_fingerprint
from service.store.values import PlanRevision
from tuner.errors import InternalError, TunerError
from tuner.fusion.soundness import UnsoundBound
from tuner.ir.custom import RuleSet

_REMEMBERED: Final = 4
"""Models that are kept as read, for the plan that is asked for next."""

Answer = tuple[dict[str, Any], tuple[bytes, ...]]


class Reader:
    """Answers one question after the other.

    Args:
        planner: how models are read and planned.
    """

    def __init__(self, planner: Planner) -> None:
        self._planner = planner
        self._read: OrderedDict[str, Prepared] = OrderedDict()

    def answer(self, head: Mapping[str, Any], data: bytes) -> Answer:
        """The answer to a question; an error of the planner is an answer too."""
        question = Question(
            data=data,
            form=head["form"],
            target=head["target"],
            options=head["options"],
            numbers=head["numbers"],
        )
        try:
            prepared = self._prepared(question)
            if head["ask"] == "outline":
                return _outline(prepared), ()
            return _revision(self._planner.analytic(prepared))
        except TunerError as error:
            place = {"where": error.where, "problem": error.problem, "hint": error.hint}
            return {"error": {"code": error.code, **place}}, ()

    def _prepared(self, question: Question) -> Prepared:
        fingerprint = body_fingerprint(question)
        if fingerprint not in self._read:
            self._read[fingerprint] = self._planner.prepare(question)
            if len(self._read) > _REMEMBERED:
                self._read.popitem(last=False)
        return self._read[fingerprint]


def _outline(prepared: Prepared) -> dict[str, Any]:
    outline = prepared.outline
    identity = outline.identity
    return {
        "key": identity.key,
        "graph_hash": identity.graph_hash,
        "target": identity.target,
        "parts": dict(identity.parts),
        "options": dict(identity.options),
        "names": dict(outline.names),
        "nodes": outline.nodes,
        "tensors": outline.tensors,
    }


def _revision(revision: PlanRevision) -> Answer:
    head = {
        "evidence": revision.evidence,
        "seconds": revision.seconds,
        "objective_seconds": revision.objective_seconds,
        "bound_seconds": revision.bound_seconds,
        "kernels": revision.kernels,
        "media_types": [blob.media_type for blob in revision.blobs],
    }
    return head, (revision.body, *(blob.content for blob in revision.blobs))


def serve(pipe: Connection, reader: Reader) -> None:
    """Answer until the parent hangs up, or until memory runs out."""
    send(pipe, {"ready": True}, ())
    while True:
        try:
            head = json.loads(pipe.recv_bytes())
            data = pipe.recv_bytes()
        except EOFError:
            return
        heard: list[warnings.WarningMessage] = []
        try:
            with warnings.catch_warnings(record=True) as heard:
                warnings.simplefilter("always", UnsoundBound)
                answer, parts = reader.answer(head, data)
        except (MemoryError, RecursionError) as error:
            send(pipe, {"died": type(error).__name__}, ())
            return
        except Exception as error:  # noqa: BLE001 - the top loop of this process
            traceback.print_exception(error)
            answer, parts = _fault(error), ()
        told = [[one.category.__name__, str(one.message)] for one in heard]
        send(pipe, {**answer, "warnings": told}, parts)


def _fault(error: Exception) -> dict[str, Any]:
    """What is told of an error that nobody foresaw; the log has the rest."""
    return {
        "error": {
            "code": InternalError.code,
            "where": "model",
            "problem": f"the planner failed in a way that nobody foresaw"
            f" ({type(error).__name__})",
            "hint": "look for it in the log of the service, and report it",
        }
    }


def send(pipe: Connection, head: Mapping[str, Any], parts: tuple[bytes, ...]) -> None:
    """Send an answer: its head with the number of its parts, then the parts."""
    pipe.send_bytes(json.dumps({**head, "parts_follow": len(parts)}).encode())
    for part in parts:
        pipe.send_bytes(part)


def limit_memory(memory_bytes: int) -> None:
    """Let allocations beyond this fail, and leave no core files behind."""
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_AS, (2 * memory_bytes, 2 * memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main(arguments: list[str]) -> None:
    """Serve the parent that gave this process its end of a pipe."""
    pipe = Connection(int(arguments[0]))
    limit_memory(int(arguments[1]))
    rules = RuleSet.from_json(json.loads(arguments[3]))
    reader = Reader(Planner(plan_seconds=float(arguments[2]), rules=rules))
    # What fails here is the pipe: a parent that was killed waits for no answer.
    with contextlib.suppress(OSError):
        serve(pipe, reader)


if __name__ == "__main__":
    main(sys.argv[1:])
