"""The same model as ONNX, light ONNX, anonymous ONNX and JSON."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from tests.tuner.frontend.models import F32, model, node, value
from tuner.errors import InvalidModel, TunerError, UnboundDimensions, UnsupportedModel
from tuner.frontend.fill import full_model, random_inputs, random_weights
from tuner.frontend.imported import Imported
from tuner.frontend.onnx import read_onnx
from tuner.frontend.strip import strip
from tuner.frontend.wire import read_json, to_json, to_onnx
from tuner.ir.graph import Graph

FILES = ("resnet18", "mobilenet_v2", "bert_mini_torchscript", "sd_unet_small")


def _assert_same(left: Graph, right: Graph) -> None:
    assert left.nodes == right.nodes
    assert left.inputs == right.inputs
    assert left.weights == right.weights
    assert left.outputs == right.outputs
    assert left.types == right.types
    assert left.constants.keys() == right.constants.keys()
    for name, array in left.constants.items():
        np.testing.assert_array_equal(array, right.constants[name])


@pytest.fixture(scope="module")
def rule(zoo_dir: Path) -> ModuleType:
    """The zoo's own program that fills light models."""
    spec = importlib.util.spec_from_file_location(
        "materialize", zoo_dir / "materialize.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=FILES)
def data(zoo_dir: Path, request: pytest.FixtureRequest) -> bytes:
    """A light model of the zoo."""
    return (zoo_dir / f"{request.param}.onnx").read_bytes()


def _read(data: bytes) -> Imported:
    return read_onnx(data, use_defaults=True)


class TestZooForms:
    """Every form of a model is read to the same graph."""

    def test_json(self, data: bytes) -> None:
        """ONNX to JSON text and back changes nothing."""
        text = json.dumps(to_json(data))
        graph = _read(data).graph
        _assert_same(read_json(text, use_defaults=True).graph, graph)
        again = to_json(to_onnx(json.loads(text)))
        assert json.loads(json.dumps(again)) == json.loads(text)

    def test_stripping_a_light_model(self, data: bytes) -> None:
        """What is light already stays as it is."""
        _assert_same(_read(strip(data)).graph, _read(data).graph)

    def test_full_and_stripped(self, data: bytes) -> None:
        """A model with its weights and the same without them."""
        light = _read(data)
        full = full_model(light, random_weights(light, 1))
        read = _read(full)
        _assert_same(read.graph, light.graph)
        assert set(read.values) == set(light.graph.weights)
        _assert_same(_read(strip(full)).graph, light.graph)

    def test_anonymous(self, data: bytes) -> None:
        """Same structure, and none of the old names anywhere in the bytes."""
        bare = strip(data, anonymous=True)
        graph, old = _read(bare).graph, _read(data).graph
        assert [n.op for n in graph.nodes] == [n.op for n in old.nodes]
        assert [n.attributes for n in graph.nodes] == [n.attributes for n in old.nodes]
        proto = onnx.ModelProto.FromString(data)
        names = {n.name for n in proto.graph.node} | {
            name for n in proto.graph.node for name in (*n.input, *n.output)
        }
        for name in names:
            assert len(name) < 4 or name.encode() not in bare, name

    def test_random_values_are_those_of_the_zoos_rule(
        self, data: bytes, rule: ModuleType
    ) -> None:
        """Weights and inputs equal what `materialize.py` makes, bit for bit."""
        imported = _read(data)
        model_ = onnx.ModelProto.FromString(data)
        expected = {
            t.name: numpy_helper.to_array(t)
            for t in rule.materialize(model_, seed=5).graph.initializer
        }
        for name, array in random_weights(imported, 5).items():
            assert array.dtype == expected[name].dtype
            np.testing.assert_array_equal(array, expected[name], err_msg=name)
        inputs = rule.random_inputs(model_, seed=5)
        ours = random_inputs(imported, 5)
        assert ours.keys() == inputs.keys()
        for name, array in ours.items():
            assert array.dtype == inputs[name].dtype
            np.testing.assert_array_equal(array, inputs[name], err_msg=name)


class TestFill:
    """Inputs and weights without a rule of the zoo."""

    def _imported(self, **metadata: Any) -> Imported:
        made = model(
            [node("Gather", "w i", "y")],
            [value("w", [9, 8]), value("i", ["n"], TensorProto.INT64)],
            "y",
            metadata={"weights": ["w"], **metadata},
        )
        return read_onnx(made.SerializeToString())

    def test_integers_without_a_range_are_zero_or_one(self) -> None:
        """An index is then always valid."""
        made = model(
            [node("Gather", "w i", "y")],
            [value("w", [9, 8]), value("i", [50], TensorProto.INT64)],
            "y",
            metadata={"weights": ["w"]},
        )
        inputs = random_inputs(read_onnx(made.SerializeToString()), 0)
        assert set(inputs["i"].tolist()) == {0, 1}

    def test_whole_divisors_are_not_zero(self) -> None:
        """A library ends at a division by zero; a stated range still holds."""
        whole = [value(name, [50], TensorProto.INT64) for name in "xyz"]
        nodes = [
            node("Identity", "y", "w"),
            node("Div", "x w", "a"),
            node("Mod", "a z", "b"),
        ]
        made = model(nodes, whole, "b")
        inputs = random_inputs(read_onnx(made.SerializeToString()), 0)
        assert [set(inputs[n].tolist()) for n in "xyz"] == [{0, 1}, {1, 2}, {1, 2}]
        made = model(nodes, whole, "b", metadata={"input_ranges": {"z": [5, 5]}})
        inputs = random_inputs(read_onnx(made.SerializeToString()), 0)
        assert set(inputs["z"].tolist()) == {5}

    def test_unbound_dimensions_are_named(self) -> None:
        """There is no size to guess."""
        with pytest.raises(UnboundDimensions, match="n=2"):
            random_inputs(self._imported(), 0)

    def test_weights_that_came_along_stay(self) -> None:
        """Random values are for the others."""
        table = np.arange(72, dtype=np.float32).reshape(9, 8)
        made = model([node("Add", "x w", "y")], [value("x", [9, 8])], "y", {"w": table})
        imported = read_onnx(made.SerializeToString())
        np.testing.assert_array_equal(random_weights(imported, 0)["w"], table)


class TestStrip:
    """The light form."""

    def test_large_floats_become_listed_inputs(self) -> None:
        """Initializers and Constant nodes; `keep` holds some back."""
        big = np.ones((9, 9), np.float32)
        made = model(
            [
                node("Constant", "", "c", value=numpy_helper.from_array(big)),
                node("Add", "x w", "a"),
                node("Add", "a k", "b"),
                node("Add", "b c", "y"),
            ],
            [value("x", [9, 9])],
            "y",
            {"w": big, "k": big},
        )
        light = onnx.ModelProto.FromString(strip(made.SerializeToString(), keep=["k"]))
        assert [v.name for v in light.graph.input] == ["x", "w", "c"]
        assert [t.name for t in light.graph.initializer] == ["k"]
        entries = {p.key: json.loads(p.value) for p in light.metadata_props}
        assert entries == {"weights": ["w", "c"], "input_ranges": {}}
        assert len(light.SerializeToString()) < 900

    def test_the_metadata_follows_the_new_names(self) -> None:
        """Ranges and sizes belong to the renamed inputs and dimensions."""
        made = model(
            [node("Exp", "secret", "y", name="mine")],
            [value("secret", ["tokens"])],
            "y",
            metadata={
                "input_ranges": {"secret": [0, 5]},
                "dim_defaults": {"tokens": 7},
                "source": "my laboratory",
            },
        )
        bare = strip(made.SerializeToString(), anonymous=True)
        imported = read_onnx(bare, use_defaults=True)
        (name,) = imported.graph.inputs
        assert imported.input_ranges[name] == (0, 5)
        assert imported.graph.types[name].shape == (7,)
        for word in (b"secret", b"tokens", b"mine", b"laboratory"):
            assert word not in bare


def _document(**changes: Any) -> dict[str, Any]:
    return {
        "schema": "fuseplan.graph/1",
        "opset": {"": 20},
        "inputs": [{"name": "x", "dtype": "f32", "shape": ["n", 4]}],
        "constants": [
            {"name": "c", "dtype": "f32", "shape": [2, 2], "data": [1, 2, 3, "NaN"]}
        ],
        "nodes": [
            {
                "name": "s",
                "op": "Softmax",
                "inputs": ["x"],
                "outputs": ["y"],
                "attributes": {"axis": 1},
            }
        ],
        "outputs": ["y"],
        **changes,
    }


class TestJson:
    """Graph JSON."""

    def test_a_document_by_hand(self) -> None:
        """Optional keys may be left out."""
        graph = read_json(_document()).graph
        assert graph.types["y"].shape == ("n", 4)

    def test_numbers_take_the_type_that_the_operator_wants(self) -> None:
        """A writer that drops `.0` makes no other model."""
        nodes = [
            {
                "op": "LeakyRelu",
                "inputs": ["x"],
                "outputs": ["y"],
                "attributes": {"alpha": 1},
            }
        ]
        assert read_json(_document(nodes=nodes)).graph.outputs == ("y",)

    def test_tensors_of_every_type_survive(self) -> None:
        """bf16, f16, bool and special numbers too."""
        constants = [
            {"name": "a", "dtype": "bf16", "shape": [2], "data": [1.5, "-Infinity"]},
            {"name": "b", "dtype": "f16", "shape": [], "data": [0.1]},
            {"name": "d", "dtype": "bool", "shape": [1, 2], "data": [True, False]},
            {"name": "e", "dtype": "i64", "shape": [1], "data": [2**53 + 1]},
            {"name": "f", "dtype": "u8", "shape": [2, 1], "data": [[3], [255]]},
        ]
        once = to_json(to_onnx(_document(constants=constants)))
        assert to_json(to_onnx(once)) == once
        data = {row["name"]: row["data"] for row in once["constants"]}
        assert data["a"] == [1.5, "-Infinity"]
        assert data["e"] == [2**53 + 1]
        assert data["f"] == [3, 255]

    @pytest.mark.parametrize(
        ("changes", "path"),
        [
            ({"schema": "other"}, "$.schema"),
            ({"nodes": {}}, "$.nodes"),
            ({"nodes": [{"inputs": ["x"]}]}, "$.nodes[0]"),
            ({"nodes": [{"op": "Exp", "inputs": [1]}]}, "$.nodes[0].inputs[0]"),
            ({"inputs": [{"name": "x", "dtype": "f32"}]}, "$.inputs[0]"),
            (
                {"inputs": [{"name": "x", "dtype": "c64", "shape": []}]},
                "$.inputs[0].dtype",
            ),
            (
                {"inputs": [{"name": "x", "dtype": "f32", "shape": [-1]}]},
                "$.inputs[0].shape[0]",
            ),
            (
                {"constants": [{"name": "c", "dtype": "f32", "shape": [2]}]},
                "$.constants[0]",
            ),
            (
                {
                    "constants": [
                        {"name": "c", "dtype": "f32", "shape": [2], "data": [1]}
                    ]
                },
                "$.constants[0].data",
            ),
            ({"opset": {"": "20"}}, "$.opset"),
            ({"outputs": "y"}, "$.outputs"),
            ({"output": []}, "$.output"),
            (
                {
                    "nodes": [
                        {
                            "op": "If",
                            "inputs": ["x"],
                            "outputs": ["y"],
                            "attributes": {"then_branch": {"nodes": []}},
                        }
                    ]
                },
                "$.nodes[0].attributes.then_branch",
            ),
        ],
    )
    def test_an_error_says_the_path(self, changes: dict[str, Any], path: str) -> None:
        """Where in the document, not where in our code."""
        with pytest.raises(TunerError) as error:
            read_json(_document(**changes))
        assert error.value.where.startswith(path)

    @pytest.mark.parametrize("text", ["", "[1", "[]", '"x"', "[" * 100_000])
    def test_text_that_is_no_object(self, text: str) -> None:
        """Neither broken JSON nor deep nesting ends in a traceback."""
        with pytest.raises(InvalidModel):
            read_json(text)

    @pytest.mark.parametrize(
        ("text", "where", "name"),
        [
            ('{"nodes": [], "nodes": []}', "$", "nodes"),
            ('{"nodes": [1, {"op": "Exp", "op": "Log"}]}', "$.nodes[1]", "op"),
            ('{"nodes": [{"a": {"k": 1, "k": 1}}]}', "$.nodes[0].a", "k"),
            ('{"a": {"k": 1, "k": 2}, "a": 3}', "$", "a"),
        ],
    )
    def test_a_name_that_is_there_twice(self, text: str, where: str, name: str) -> None:
        """One of its values would be lost; the error says which object, which name."""
        with pytest.raises(InvalidModel, match=f"has the name '{name}' twice") as error:
            read_json(text)
        assert error.value.where == where

    def test_subgraphs_have_no_json_form(self) -> None:
        """The error names the attribute."""
        branch = onnx.helper.make_graph(
            [node("Exp", "x", "t")], "b", [], [value("t", [2])]
        )
        made = model(
            [node("If", "c", "y", then_branch=branch, else_branch=branch)],
            [value("x", [2], F32), value("c", [], TensorProto.BOOL)],
            "y",
        )
        with pytest.raises(UnsupportedModel, match=r"then_branch|else_branch"):
            to_json(made.SerializeToString())


BROKEN = "\ud800"
UNSTORABLE: tuple[tuple[dict[str, Any], str], ...] = (
    (
        {"inputs": [{"name": "x", "dtype": "f32", "shape": [2, 10**30]}]},
        "$.inputs[0].shape[1]",
    ),
    (
        {"weights": [{"name": "w", "dtype": "f32", "shape": [2**63]}]},
        "$.weights[0].shape[0]",
    ),
    (
        {"inputs": [{"name": BROKEN, "dtype": "f32", "shape": [2]}]},
        "$.inputs[0].name",
    ),
    (
        {"inputs": [{"name": "x", "dtype": "f32", "shape": [BROKEN]}]},
        "$.inputs[0].shape[0]",
    ),
    ({"nodes": [{"op": BROKEN}]}, "$.nodes[0].op"),
    ({"nodes": [{"op": "Exp", "name": BROKEN}]}, "$.nodes[0].name"),
    ({"nodes": [{"op": "Exp", "inputs": ["x", BROKEN]}]}, "$.nodes[0].inputs[1]"),
    ({"nodes": [{"op": "Exp", "outputs": [BROKEN]}]}, "$.nodes[0].outputs[0]"),
    (
        {"nodes": [{"op": "Pad", "attributes": {"mode": BROKEN}}]},
        "$.nodes[0].attributes.mode",
    ),
    (
        {"nodes": [{"op": "Elu", "attributes": {BROKEN: 1}}]},
        "$.nodes[0].attributes",
    ),
    (
        {"nodes": [{"op": "Softmax", "attributes": {"axis": 10**30}}]},
        "$.nodes[0].attributes.axis",
    ),
    ({"outputs": [BROKEN]}, "$.outputs[0]"),
    ({"opset": {"": 10**30}}, "$.opset"),
    ({"opset": {BROKEN: 1}}, "$.opset"),
    (
        {"constants": [{"name": "c", "dtype": "i64", "shape": [1], "data": [10**30]}]},
        "$.constants[0].data",
    ),
)


@pytest.mark.parametrize(("parts", "path"), UNSTORABLE)
def test_what_no_message_can_hold_is_told_by_its_path(
    parts: dict[str, Any], path: str
) -> None:
    """Numbers beyond 64 bits and texts that are not Unicode, wherever they stand."""
    whole = {
        "schema": "fuseplan.graph/1",
        "opset": {"": 20},
        "inputs": [{"name": "x", "dtype": "f32", "shape": [2]}],
        "nodes": [{"op": "Exp", "inputs": ["x"], "outputs": ["y"]}],
        "outputs": ["y"],
    }
    with pytest.raises(InvalidModel) as error:
        read_json(json.dumps({**whole, **parts}))
    assert error.value.where.startswith(path)
    str(error.value).encode()
