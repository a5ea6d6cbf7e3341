"""How fast a plan comes back: the same file again, and a renamed, reordered copy.

    python -m benchmarks.cache MODELS

Starts the service with an empty database, submits every model of a folder (analytic,
sm_90), then the same bytes again, then a copy with every name changed and the nodes
shuffled. A row says whether key and plan bytes were equal and how long the second and
third answers took, beside the import alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import onnx

from tuner.model import load

REPEATS = 5
_COMMAND = str(Path(sys.executable).with_name("fuseplan"))


@contextmanager
def service() -> Iterator[str]:
    """A service with an empty database; yields its address."""
    port = 8391
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "XDG_DATA_HOME": folder, "XDG_STATE_HOME": folder}
        process = subprocess.Popen(
            [_COMMAND, "serve", "--port", str(port)],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _wait(f"http://127.0.0.1:{port}/readyz")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(timeout=30)


def _wait(url: str) -> None:
    for _ in range(300):
        try:
            if httpx.get(url).status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise SystemExit("the service did not start")


def disguised(data: bytes, seed: int) -> bytes:
    """The model with other names, and its nodes in another order that can run."""
    model = onnx.load_from_string(data)
    chance = random.Random(seed)
    names: dict[str, str] = {}

    def other(name: str) -> str:
        return names.setdefault(name, f"other_{len(names)}") if name else ""

    graph = model.graph
    values = (*graph.input, *graph.output, *graph.initializer, *graph.value_info)
    for value in values:
        value.name = other(value.name)
    for node in graph.node:
        node.name = f"node_{other(node.name)}"
        node.input[:] = [other(name) for name in node.input]
        node.output[:] = [other(name) for name in node.output]
    _shuffle(graph, chance)
    for entry in model.metadata_props:
        decoded = json.loads(entry.value)
        if entry.key == "weights":
            entry.value = json.dumps([other(name) for name in decoded])
        elif entry.key == "input_ranges":
            entry.value = json.dumps({other(k): v for k, v in decoded.items()})
    return bytes(model.SerializeToString())


def _shuffle(graph: onnx.GraphProto, chance: random.Random) -> None:
    """A random topological order."""
    waiting = list(graph.node)
    made = {out for node in waiting for out in node.output}
    ready: list[onnx.NodeProto] = []
    order: list[onnx.NodeProto] = []
    done: set[str] = set()
    while waiting or ready:
        now = [n for n in waiting if all(i in done or i not in made for i in n.input)]
        waiting = [n for n in waiting if not any(n is m for m in now)]
        ready += now
        node = ready.pop(chance.randrange(len(ready)))
        order.append(node)
        done.update(node.output)
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in order]
    del graph.node[:]
    graph.node.extend(copies)


def ask(client: httpx.Client, data: bytes) -> tuple[dict[str, Any], float]:
    """Submit a model; the answer, and the seconds that it took."""
    start = time.perf_counter()
    answer = client.post(
        "/v1/plans",
        params={"target": "sm_90"},
        content=data,
        headers={"content-type": "application/onnx"},
    )
    seconds = time.perf_counter() - start
    answer.raise_for_status()
    return answer.json(), seconds


def row(client: httpx.Client, path: Path) -> str:
    """One model's line of the table."""
    data = path.read_bytes()
    first, first_seconds = ask(client, data)
    again = [ask(client, data) for _ in range(REPEATS)]
    copies = [disguised(data, seed) for seed in range(REPEATS)]
    others = [ask(client, copy) for copy in copies]
    imports = [load(copy).import_seconds for copy in copies]
    answers = [answer for answer, _ in (*again, *others)]
    same = all(
        answer["plan_key"] == first["plan_key"]
        and answer["digest"] == first["digest"]
        and _plan_digest(answer) == _plan_digest(first)
        for answer in answers
    )
    own = all(answer["names"] != first["names"] for answer, _ in others)
    second = statistics.median(seconds for _, seconds in again)
    third = statistics.median(seconds for _, seconds in others)
    read = statistics.median(imports)
    return (
        f"| {path.stem} | {'yes' if same else 'NO'} | {'yes' if own else 'NO'} "
        f"| {first_seconds:.2f} s | {1e3 * second:.0f} | {1e3 * third:.0f} "
        f"| {1e3 * read:.0f} | {1e3 * (third - read):.0f} |"
    )


def _plan_digest(answer: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(answer["plan"]).encode()).hexdigest()


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, help="folder of ONNX files")
    options = parser.parse_args(arguments)
    print(
        "| model | same key and bytes | own names | first | again ms | copy ms "
        "| import ms | copy minus import ms |"
    )
    print("|---|---|---|---|---|---|---|---|")
    with service() as url, httpx.Client(base_url=url, timeout=300) as client:
        for path in sorted(options.models.glob("*.onnx")):
            print(row(client, path), flush=True)


if __name__ == "__main__":
    main()
