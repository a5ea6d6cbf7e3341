"""Real models: identity under renaming and reordering, and what is left of them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import onnx
import pytest

from tests.conftest import ZOO
from tuner.frontend.onnx import read_onnx
from tuner.ir.fingerprint import Canonical, canonicalize
from tuner.ir.verify import verify
from tuner.rewrite import simplify


def planned(data: bytes) -> Canonical:
    """The canonical, simplified graph of a model."""
    imported = read_onnx(data)
    if imported.symbols:
        imported = read_onnx(data, dims=imported.dim_defaults)
    split = simplify(imported.graph, training=imported.is_training)
    found = canonicalize(split.graph, split.prepare)
    verify(found.graph)
    verify(found.prepare)
    return found


def disguised(data: bytes, seed: int) -> bytes:
    """The same model with other names, its nodes and inputs in another order."""
    choose = random.Random(seed)
    model = onnx.ModelProto.FromString(data)
    graph = model.graph
    known = [v.name for v in (*graph.input, *graph.initializer)]
    made = [o for node in graph.node for o in node.output if o]
    names = {name: f"x{choose.getrandbits(40)}" for name in (*known, *made)}
    for value in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
        value.name = names.get(value.name, value.name)
    for number, node in enumerate(graph.node):
        node.name = f"y{number * 7919 % 10007}"
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for row in model.metadata_props:
        if row.key == "weights":
            row.value = json.dumps([names[name] for name in json.loads(row.value)])
        if row.key == "input_ranges":
            ranges = json.loads(row.value)
            row.value = json.dumps({names[k]: bounds for k, bounds in ranges.items()})
    _reorder(graph, choose)
    return model.SerializeToString()


def _reorder(graph: onnx.GraphProto, choose: random.Random) -> None:
    for field in (graph.input, graph.initializer, graph.value_info):
        rows = choose.sample(list(field), len(field))
        del field[:]
        field.extend(rows)
    made = {o for node in graph.node for o in node.output}
    waiting = {
        n: {i for i in node.input if i in made} for n, node in enumerate(graph.node)
    }
    nodes = list(graph.node)
    ordered: list[onnx.NodeProto] = []
    while waiting:
        able = [number for number, missing in waiting.items() if not missing]
        number = choose.choice(able)
        del waiting[number]
        ordered.append(nodes[number])
        for missing in waiting.values():
            missing.difference_update(nodes[number].output)
    del graph.node[:]
    graph.node.extend(ordered)


@pytest.mark.parametrize("name", ZOO)
def test_a_disguised_model_has_the_same_identity(
    zoo_dir: Path, name: str, soak: bool
) -> None:
    """Names and order of an ONNX file leave no trace in the canonical graph."""
    data = (zoo_dir / f"{name}.onnx").read_bytes()
    wanted = planned(data)
    for seed in range(5 if soak else 1):
        assert planned(disguised(data, seed)).fingerprint == wanted.fingerprint


def test_patterns_have_identities_of_their_own(patterns_dir: Path) -> None:
    """Different small graphs differ, a disguised one does not."""
    seen: dict[str, str] = {}
    for path in sorted(patterns_dir.glob("*.onnx")):
        data = path.read_bytes()
        found = planned(data).fingerprint
        assert planned(disguised(data, 1)).fingerprint == found, path.stem
        assert found not in seen, (path.stem, seen[found])
        seen[found] = path.stem


def test_every_user_node_is_listed_somewhere(zoo_dir: Path) -> None:
    """No node of the model is lost when its work is folded, merged or cancelled."""
    for name in ZOO:
        data = (zoo_dir / f"{name}.onnx").read_bytes()
        imported = read_onnx(data)
        if imported.symbols:
            imported = read_onnx(data, dims=imported.dim_defaults)
        before = {o for node in imported.graph.nodes for o in node.origins}
        split = simplify(imported.graph, training=imported.is_training)
        nodes = (*split.graph.nodes, *split.prepare.nodes)
        assert before <= {o for node in nodes for o in node.origins}, name


def test_batch_norm_is_gone_from_resnet(zoo_dir: Path) -> None:
    """Twenty convolutions take their batch norms, with no value of a weight known."""
    found = planned((zoo_dir / "resnet18.onnx").read_bytes())
    ops = [node.op for node in found.graph.nodes]
    assert ops.count("conv") == 20
    assert "sqrt" not in ops
    assert set(ops) == {
        "conv", "relu", "add", "max_pool", "reduce_sum", "div", "reshape", "matmul"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "is_folded"),
    [
        ("conv_bn_relu_infer", True),
        ("conv_bn_relu_train", False),
        ("conv_bn_two_readers", False),
    ],
)
def test_batch_norm_is_folded_where_it_may(
    patterns_dir: Path, name: str, is_folded: bool
) -> None:
    """With fixed statistics and a single reader, and nowhere else."""
    found = planned((patterns_dir / f"{name}.onnx").read_bytes())
    conv = next(node for node in found.graph.nodes if node.op == "conv")
    assert ("bn" in found.names[conv.name]) == is_folded
