"""The plan key: equal questions, equal keys; different questions, different keys."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.tuner.search.conftest import small_model
from tuner import keys
from tuner.document import encode, graph_json
from tuner.frontend.fill import random_weights
from tuner.frontend.strip import strip
from tuner.frontend.wire import to_json
from tuner.keys import plan_key
from tuner.model import load
from tuner.pipeline import resolve_target
from tuner.plan import PRICE_REVISION, Options

CPU = resolve_target("cpu")


def key(data: bytes, form: str = "onnx", options: Options | None = None) -> str:
    """Key of a model on the processor."""
    model = load(data, "json" if form == "json" else "onnx")
    return plan_key(model.fingerprint, CPU, options or Options()).key


def filled(light: bytes) -> bytes:
    """The model with its weights as initializers."""
    model = onnx.load_from_string(light)
    values = random_weights(load(light).imported, 3)
    kept = [v for v in model.graph.input if v.name not in values]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    for name, array in values.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    del model.metadata_props[:]
    return model.SerializeToString()


def renamed(light: bytes) -> bytes:
    """Every node and tensor under another name, independent nodes swapped."""
    model = onnx.load_from_string(light)
    names: dict[str, str] = {}

    def other(name: str) -> str:
        return names.setdefault(name, f"q{len(names)}") if name else ""

    for node in model.graph.node:
        node.name = f"node_{other(node.name)}"
        node.input[:] = [other(n) for n in node.input]
        node.output[:] = [other(n) for n in node.output]
    for value in (*model.graph.input, *model.graph.output):
        value.name = other(value.name)
    reordered = list(reversed(list(model.graph.input)))
    del model.graph.input[:]
    model.graph.input.extend(reordered)
    weights = [v.name for v in model.graph.input if v.name != names["x"]]
    del model.metadata_props[:]
    model.metadata_props.add(key="weights", value='["' + '","'.join(weights) + '"]')
    return model.SerializeToString()


def test_a_full_a_light_and_a_json_model_share_a_key() -> None:
    """Weight values and the form of the file are no part of the question."""
    light = small_model()
    full = filled(light)
    keys = {
        key(light),
        key(full),
        key(strip(full)),
        key(encode(to_json(light)), "json"),
    }
    assert len(keys) == 1


def test_a_renamed_and_reordered_copy_shares_the_key() -> None:
    """Names and the order of weights are no part of the question."""
    assert key(renamed(small_model())) == key(small_model())


def test_what_decides_something_changes_the_key() -> None:
    """Shapes, options, target and toolchain are parts of the question."""
    light = small_model()
    model = onnx.load_from_string(light)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 16
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 16
    fingerprint = load(light).fingerprint
    other_target = plan_key(fingerprint, resolve_target("l4"), Options()).key
    keys = {
        key(light),
        key(model.SerializeToString()),
        key(light, options=Options(exactness="relaxed")),
        key(light, options=replace(Options(), launch_mode="graph")),
        other_target,
    }
    assert len(keys) == 5


def test_other_prices_make_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that another cost model chose is found as one of another toolchain."""
    fingerprint = load(small_model()).fingerprint
    here = plan_key(fingerprint, CPU, Options())
    assert here.toolchain["price_revision"] == PRICE_REVISION
    monkeypatch.setattr(keys, "PRICE_REVISION", PRICE_REVISION + 1)
    there = plan_key(fingerprint, CPU, Options())
    assert here.key != there.key
    differing = {n for n in here.parts if here.parts[n] != there.parts[n]}
    assert differing == {"toolchain"}


def test_parts_tell_what_differs() -> None:
    """Two keys of one graph on two targets differ in the target's part alone."""
    fingerprint = load(small_model()).fingerprint
    here = plan_key(fingerprint, CPU, Options()).parts
    there = plan_key(fingerprint, replace(CPU, id="cpu-2"), Options()).parts
    assert {name for name in here if here[name] != there[name]} == {"target"}


def test_names_lead_back_to_the_model_that_was_handed_in() -> None:
    """Two renamed copies share ids and keep their own names."""
    mine, other = load(small_model()), load(renamed(small_model()))
    assert graph_json(mine.graph) == graph_json(other.graph)
    assert set(mine.names) == set(other.names)
    found = {name for names in mine.names.values() for name in names}
    assert {"l0.matmul", "l1.norm", "x", "w0"} <= found
    others = {name for names in other.names.values() for name in names}
    assert all(name.startswith("constant/") for name in found & others)


def test_the_fingerprint_ignores_weight_values() -> None:
    """Two sets of weights are one question."""
    light = small_model()
    model = onnx.load_from_string(filled(light))
    before = load(model.SerializeToString()).fingerprint
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        tensor.CopyFrom(numpy_helper.from_array(np.ones_like(array), tensor.name))
    assert load(model.SerializeToString()).fingerprint == before
