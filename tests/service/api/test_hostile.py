"""Tests of files and requests that mean harm: refused or handled, never obeyed."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import onnx
import pytest
import zstandard
from fastapi.testclient import TestClient
from onnx import TensorProto, helper

from service.app import create_app
from tests.conftest import SOAK
from tests.service.api.conftest import settings
from tests.service.api.models import graph_json, graph_onnx

Json = dict[str, Any]

CHAIN = 30_000 if SOAK else 5000
"""Steps of the longest chain; merging their names costs its square."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service that reads models in a process of their own, with little time."""
    folder = tmp_path_factory.mktemp("hostile")
    app = create_app(
        settings(
            folder, planner_processes=1, read_seconds=20.0, max_body_bytes=8 * 2**20
        )
    )
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def node(op: str, inputs: list[str], outputs: list[str], **attributes: object) -> Json:
    """A node of graph JSON."""
    return {
        "name": outputs[0] if outputs else op,
        "op": op,
        "domain": "",
        "inputs": inputs,
        "outputs": outputs,
        "attributes": attributes,
    }


def graph(nodes: list[Json], outputs: list[str], shape: object = (4, 8)) -> Json:
    """A graph over one input `x`."""
    value = {"name": "x", "dtype": "f32", "shape": shape}
    return {**graph_json(), "inputs": [value], "nodes": nodes, "outputs": outputs}


def changed(**parts: object) -> Json:
    """The small graph with some parts replaced."""
    return {**graph_json(), **parts}


NAMES = {
    "a quote": 'x"',
    "an apostrophe": "x'; --",
    "sql": "x'); DROP TABLE plans; --",
    "html": "<script>alert(1)</script>",
    "an image": "<img src=x onerror=alert(1)>",
    "a line end": "x\ny",
    "a carriage return": "x\r\nSet-Cookie: a=b",
    "code": "*/ system(0); /*",
    "a macro": "x\n#include </etc/passwd>\n",
    "a format": "%s%n{0}${y}",
    "a template": "{{7*7}}{% raw %}",
    "a path": "../../etc/passwd",
    "an absolute path": "/etc/shadow",
    "a nul": "x\u0000y",
    "right to left": "\u202exyz",
    "combining": "Z\u0351\u036b" * 20,
    "an emoji": "\U0001f4a9",
    "a lone surrogate": "\ud800",
    "very long": "n" * 100_000,
    "a keyword": "__kernel",
    "a url": "javascript:alert(1)",
}

GRAPHS: dict[str, Callable[[], object]] = {
    "a cycle": lambda: graph(
        [node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"])], ["b"]
    ),
    "itself": lambda: graph([node("Add", ["x", "a"], ["a"])], ["a"]),
    "nobody makes it": lambda: graph([node("Relu", ["zzz"], ["a"])], ["a"]),
    "made twice": lambda: graph(
        [node("Relu", ["x"], ["a"]), node("Tanh", ["x"], ["a"])], ["a"]
    ),
    "no such output": lambda: graph([node("Relu", ["x"], ["a"])], ["b"]),
    "no nodes": lambda: graph([], ["x"]),
    "no outputs": lambda: graph([node("Relu", ["x"], ["a"])], []),
    "unknown operator": lambda: graph([node("Explode", ["x"], ["a"])], ["a"]),
    "foreign domain": lambda: graph(
        [{**node("Relu", ["x"], ["a"]), "domain": "evil.example"}], ["a"]
    ),
    "no inputs": lambda: graph([node("Add", [], ["a"])], ["a"]),
    "many inputs": lambda: graph([node("Relu", ["x"] * 1000, ["a"])], ["a"]),
    "huge shape": lambda: graph([node("Relu", ["x"], ["a"])], ["a"], [2**62, 2**62]),
    "overflow": lambda: graph([node("Relu", ["x"], ["a"])], ["a"], [2**32, 2**32, 2]),
    "beyond 64 bits": lambda: graph([node("Relu", ["x"], ["a"])], ["a"], [10**30]),
    "negative": lambda: graph([node("Relu", ["x"], ["a"])], ["a"], [-5, 4]),
    "empty": lambda: graph([node("Relu", ["x"], ["a"])], ["a"], [0, 4]),
    "fractional": lambda: graph([node("Relu", ["x"], ["a"])], ["a"], [1.5]),
    "boolean": lambda: graph([node("Relu", ["x"], ["a"])], ["a"], [True]),
    "many axes": lambda: graph([node("Relu", ["x"], ["a"])], ["a"], [1] * 5000),
    "no list": lambda: graph([node("Relu", ["x"], ["a"])], ["a"], "abc"),
    "unknown dtype": lambda: changed(
        inputs=[{"name": "x", "dtype": "f999", "shape": [1]}]
    ),
    "nan attribute": lambda: graph(
        [node("LeakyRelu", ["x"], ["a"], alpha="NaN")], ["a"]
    ),
    "huge attribute": lambda: graph(
        [node("Transpose", ["x"], ["a"], perm=[10**20, 0])], ["a"]
    ),
    "axis beyond": lambda: graph([node("Softmax", ["x"], ["a"], axis=99)], ["a"]),
    "attribute as object": lambda: graph(
        [node("Softmax", ["x"], ["a"], axis={"$gt": 0})], ["a"]
    ),
    "long chain": lambda: graph(
        [node("Relu", [f"t{i}" if i else "x"], [f"t{i + 1}"]) for i in range(CHAIN)],
        [f"t{CHAIN}"],
    ),
    "other schema": lambda: changed(schema="fuseplan.graph/99"),
    "no schema": lambda: changed(schema=None),
    "nodes as text": lambda: changed(nodes="abc"),
    "nodes as numbers": lambda: changed(nodes=[1, 2, 3]),
    "opset from the future": lambda: changed(opset={"": 10**9}),
    "opset as text": lambda: changed(opset={"": "18; rm -rf /"}),
    "bad constant": lambda: changed(
        constants=[{"name": "c", "dtype": "f32", "shape": [2**40], "data": "AAAA"}]
    ),
}


def external() -> bytes:
    """A model whose weights lie in a file of the server."""
    model = onnx.load_from_string(graph_onnx())
    tensor = model.graph.initializer.add()
    tensor.name, tensor.data_type = "w", TensorProto.FLOAT
    tensor.dims.extend([32, 64])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "/etc/passwd"), ("length", "8192")):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    return bytes(model.SerializeToString())


def huge_fill() -> bytes:
    """A few bytes that ask for a constant of terabytes."""
    shape = helper.make_tensor("s", TensorProto.INT64, [2], [2**20, 2**20])
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["c"]),
        helper.make_node("Add", ["x", "c"], ["y"]),
    ]
    kind = TensorProto.FLOAT
    made = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kind, [1])],
        [helper.make_tensor_value_info("y", kind, [2**20, 2**20])],
        initializer=[shape],
    )
    return bytes(helper.make_model(made).SerializeToString())


def nested(depth: int) -> bytes:
    """A branch in a branch in a branch."""
    kind = TensorProto.FLOAT
    value = helper.make_tensor_value_info("y", kind, [1])
    inner = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "g", [], [value]
    )
    for _ in range(depth):
        branch = helper.make_node(
            "If", ["c"], ["y"], then_branch=inner, else_branch=inner
        )
        inner = helper.make_graph([branch], "g", [], [value])
    inner.input.extend(
        [
            helper.make_tensor_value_info("x", kind, [1]),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        ]
    )
    return bytes(helper.make_model(inner).SerializeToString())


def a_million() -> bytes:
    """As many nodes as fit, each as small as a node can be."""
    node = helper.make_node("Relu", ["x"], ["y"]).SerializeToString()
    made = helper.make_graph([], "g", [], []).SerializeToString()
    nodes = (b"\x0a" + bytes([len(node)]) + node) * 10**6
    head = helper.make_model(helper.make_graph([], "g", [], []))
    head.ClearField("graph")
    inner = nodes + made
    length = bytearray()
    rest = len(inner)
    while rest > 0x7F:
        length.append(rest & 0x7F | 0x80)
        rest >>= 7
    length.append(rest)
    return bytes(head.SerializeToString() + b"\x3a" + length + inner)


def odd_attribute(**attributes: float | str) -> bytes:
    """A small model with attributes that no operator wants."""
    kind = TensorProto.FLOAT
    made = helper.make_graph(
        [helper.make_node("LeakyRelu", ["x"], ["y"], **attributes)],
        "g",
        [helper.make_tensor_value_info("x", kind, [4])],
        [helper.make_tensor_value_info("y", kind, [4])],
    )
    return bytes(helper.make_model(made).SerializeToString())


def packed_tar(name: str, kind: bytes, link: str = "") -> bytes:
    """A bundle whose only member is none."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, link
        archive.addfile(member)
    return zstandard.ZstdCompressor().compress(buffer.getvalue())


def zipped() -> bytes:
    """Much of nothing in a zip."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.onnx", bytes(2**26))
    return buffer.getvalue()


def tarred() -> bytes:
    """A link and a path upwards."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in ("../../etc/cron.d/x", "/root/.ssh/authorized_keys"):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(member)
    return buffer.getvalue()


FILES: dict[str, Callable[[], bytes]] = {
    "truncated": lambda: graph_onnx()[:50],
    "one byte": lambda: b"\x0a",
    "zeros": lambda: bytes(10_000),
    "ones": lambda: b"\xff" * 10_000,
    "a long varint": lambda: b"\x80" * 5000,
    "a length that lies": lambda: b"\x3a\xff\xff\xff\xff\x0f" + b"x" * 10,
    "bits flipped": lambda: bytes(b ^ 0x55 for b in graph_onnx()),
    "twice": lambda: graph_onnx() * 2,
    "external data": external,
    "a huge constant": huge_fill,
    "deep branches": lambda: nested(9),
    "a zip bomb": zipped,
    "a gzip bomb": lambda: gzip.compress(bytes(2**26)),
    "a zstd bomb": lambda: zstandard.ZstdCompressor().compress(bytes(2**26)),
    "a tar with links": tarred,
    "a million nodes": a_million,
    "an attribute that is not a number": lambda: odd_attribute(alpha=float("nan")),
    "an endless attribute": lambda: odd_attribute(alpha=float("inf")),
    "an attribute with sql": lambda: odd_attribute(alpha="'; DROP TABLE plans; --"),
    "an attribute with html": lambda: odd_attribute(mode="<script>alert(1)</script>"),
    "a bundle with a link": lambda: packed_tar(
        "manifest.json", tarfile.SYMTYPE, "/etc/passwd"
    ),
    "a bundle with a hard link": lambda: packed_tar(
        "SHA256SUMS", tarfile.LNKTYPE, "/etc/passwd"
    ),
    "a bundle with a device": lambda: packed_tar("manifest.json", tarfile.CHRTYPE),
    "a bundle that climbs": lambda: packed_tar("../../x", tarfile.REGTYPE),
    "a bundle at the root": lambda: packed_tar("/etc/cron.d/x", tarfile.REGTYPE),
    "a wide zstd window": lambda: zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters(window_log=31)
    ).compress(b"x" * 100),
    "a pickle": lambda: b"cos\nsystem\n(S'touch /tmp/owned'\ntR.",
    "a shell script": lambda: b"#!/bin/sh\ntouch /tmp/owned\n",
    "html": lambda: b"<html><script>alert(1)</script></html>",
}

HARMLESS = {
    "twice",
    "external data",
    "deep branches",
    "a huge constant",
    "an attribute that is not a number",
    "an endless attribute",
}
"""Files that mean something: nothing is made or opened, there is only a plan."""

REQUESTS: dict[str, Callable[[TestClient], Any]] = {
    "sql in a target": lambda c: c.post(
        "/v1/plans", json={"graph": graph_json(), "target": "cpu' OR 1=1 --"}
    ),
    "html in a target": lambda c: c.post(
        "/v1/plans", json={"graph": graph_json(), "target": "<script>"}
    ),
    "a path as a target": lambda c: c.post(
        "/v1/plans", json={"graph": graph_json(), "target": "../../etc/passwd"}
    ),
    "deep options": lambda c: c.post(
        "/v1/plans",
        content=b'{"graph": {}, "target": "cpu", "options": {"a":'
        + b"[" * 50_000
        + b"]" * 50_000
        + b"}}",
        headers={"Content-Type": "application/json"},
    ),
    "a million pins": lambda c: c.post(
        "/v1/plans",
        json={
            "graph": graph_json(),
            "target": "cpu",
            "options": {"pins": [{"fuse": True, "nodes": ["n0", "n1"]}] * 100_000},
        },
    ),
    "sql in a title": lambda c: c.post(
        "/v1/plans",
        json={"graph": graph_json(), "target": "cpu", "title": "'; DROP TABLE jobs"},
    ),
    "html in a title": lambda c: c.post(
        "/v1/plans",
        json={"graph": graph_json(), "target": "cpu", "title": "<img onerror=x>"},
    ),
    "sql in options": lambda c: c.post(
        "/v1/plans",
        json={
            "graph": graph_json(),
            "target": "cpu",
            "options": {"objective": "'; DROP TABLE plans; --"},
        },
    ),
    "html in a shape": lambda c: c.post(
        "/v1/plans",
        json={
            "graph": graph_json(),
            "target": "cpu",
            "options": {"shapes": {"<script>": 4}},
        },
    ),
    "a repeat key with a line end": lambda c: c.post(
        "/v1/plans",
        json={"graph": graph_json(), "target": "cpu"},
        headers={"Idempotency-Key": "'; DROP TABLE idempotency; -- %0d%0a"},
    ),
    "sql in a lookup": lambda c: c.post(
        "/v1/plans:lookup", json={"keys": ["' OR 1=1 --"], "evidence": "measured"}
    ),
    "a million keys": lambda c: c.post(
        "/v1/plans:lookup", json={"keys": ["0" * 64] * 100_000}
    ),
    "html in a node to explain": lambda c: c.get(
        f"/v1/plans/{'0' * 64}/explain", params={"a": "<script>", "b": "' OR 1"}
    ),
    "sql in an event id": lambda c: c.get(
        "/v1/jobs/none/events", headers={"Last-Event-ID": "1 OR 1=1"}
    ),
    "sql in a job": lambda c: c.get("/v1/jobs/1'%20OR%20'1'='1"),
    "sql in a cursor": lambda c: c.get("/v1/jobs", params={"cursor": "' OR 1=1 --"}),
    "a path as a digest": lambda c: c.get("/v1/blobs/sha256/..%2f..%2fetc%2fpasswd"),
    "a path as a static file": lambda c: c.get("/static/x/..%2f..%2fapp.py"),
    "a header with a line end": lambda c: c.get(
        "/livez", headers={"X-Request-Id": "a%0d%0aSet-Cookie: b"}
    ),
    "a compressed body": lambda c: c.post(
        "/v1/plans?target=cpu",
        content=gzip.compress(graph_onnx()),
        headers={
            "Content-Type": "application/onnx",
            "Content-Encoding": "gzip",
        },
    ),
    "numbers that are none": lambda c: c.post(
        "/v1/plans",
        content=b'{"graph": {}, "target": "cpu", "budget_seconds": NaN}',
        headers={"Content-Type": "application/json"},
    ),
}


def is_handled(client: TestClient, answer: Any) -> None:
    """The answer is no fault of the service's, and the service lives on."""
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        if answer.headers["Content-Type"] == "text/html; charset=utf-8":
            assert answer.url.path.startswith("/static/")  # pages explain in words
        else:
            assert answer.headers["Content-Type"] == "application/problem+json"
            assert answer.json()["code"] != "unexpected"
    assert client.get("/livez").status_code == 200


def test_there_are_enough_of_them() -> None:
    """At least sixty different ones."""
    assert len(NAMES) + len(GRAPHS) + len(FILES) + len(REQUESTS) >= 60


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_name_is_only_a_name(client: TestClient, name: str) -> None:
    """It comes back as it was, and is in no plan and in no generated source."""
    body = json.dumps({"graph": graph_json(NAMES[name]), "target": "cpu"})
    answer = client.post(
        "/v1/plans", content=body, headers={"Content-Type": "application/json"}
    )
    is_handled(client, answer)
    if answer.status_code != 200:
        return
    told = answer.json()
    assert told["names"]["n0"] == [f"{NAMES[name]}relu"]
    key = told["plan_key"]
    sources = [
        client.get(f"/v1/blobs/sha256/{digest}").text
        for kernel in told["plan"]["kernels"]
        for digest in kernel["sources"].values()
    ]
    body = client.get(f"/v1/plans/{key}").text
    assert sources
    for text in (body, *sources):
        assert NAMES[name] not in text or name == "a keyword"


@pytest.mark.parametrize("name", GRAPHS)
def test_a_hostile_graph_is_handled(client: TestClient, name: str) -> None:
    """Refused with a code, or planned when it means something after all."""
    body = json.dumps({"graph": GRAPHS[name](), "target": "cpu"})
    answer = client.post(
        "/v1/plans", content=body, headers={"Content-Type": "application/json"}
    )
    is_handled(client, answer)


@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file_is_handled(client: TestClient, name: str) -> None:
    """Whether handed in as a model or as a bundle."""
    data = FILES[name]()
    for path, kind in (
        ("/v1/plans?target=cpu", "application/onnx"),
        ("/v1/bundles", "application/zstd"),
    ):
        answer = client.post(path, content=data, headers={"Content-Type": kind})
        is_handled(client, answer)
        assert answer.status_code >= 400 or name in HARMLESS


@pytest.mark.parametrize("name", REQUESTS)
def test_a_hostile_request_is_handled(client: TestClient, name: str) -> None:
    """Every string is data."""
    is_handled(client, REQUESTS[name](client))
