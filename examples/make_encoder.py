"""Write encoder.onnx: a transformer encoder without weights, for the demo.

Four post-norm layers of width 256 with 4 heads, a feed-forward of
1024 with the Erf form of GELU, on 128 tokens. Weights are graph inputs, listed in the
metadata entry `weights`, so that the file stays small.

Usage: python examples/make_encoder.py [-o examples/encoder.onnx]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LAYERS, TOKENS, WIDTH, HEADS, INNER, VOCABULARY = 4, 128, 256, 4, 1024, 8192


@dataclass
class Builder:
    """Collects nodes, weights and constants of one graph."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.ValueInfoProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def op(self, op_type: str, name: str, *inputs: str, **attributes: object) -> str:
        """Append a node; its one output has the node's name."""
        self.nodes.append(
            helper.make_node(op_type, list(inputs), [name], name=name, **attributes)
        )
        return name

    def weight(self, name: str, *shape: int) -> str:
        """Declare a weight."""
        info = helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        self.weights.append(info)
        return name

    def constant(self, name: str, value: object, dtype: str) -> str:
        """Add a small constant."""
        array = np.asarray(value, dtype=dtype)
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def linear(self, name: str, x: str, inner: int, outer: int) -> str:
        """A matrix product with a bias."""
        weight = self.weight(f"{name}.weight", inner, outer)
        product = self.op("MatMul", f"{name}.matmul", x, weight)
        return self.op("Add", name, product, self.weight(f"{name}.bias", outer))

    def layer_norm(self, name: str, x: str) -> str:
        """A layer normalisation over the last axis."""
        scale = self.weight(f"{name}.scale", WIDTH)
        shift = self.weight(f"{name}.shift", WIDTH)
        return self.op(
            "LayerNormalization", name, x, scale, shift, axis=-1, epsilon=1e-5
        )


def attention(b: Builder, name: str, x: str, mask: str) -> str:
    """Masked self-attention, written out as exporters do."""
    heads = {}
    for part in ("query", "key", "value"):
        flat = b.linear(f"{name}.{part}", x, WIDTH, WIDTH)
        split = b.op("Reshape", f"{name}.{part}.split", flat, "split_shape")
        perm = [0, 2, 3, 1] if part == "key" else [0, 2, 1, 3]
        heads[part] = b.op("Transpose", f"{name}.{part}.heads", split, perm=perm)
    scores = b.op("MatMul", f"{name}.scores", heads["query"], heads["key"])
    scaled = b.op("Mul", f"{name}.scaled", scores, "score_scale")
    masked = b.op("Add", f"{name}.masked", scaled, mask)
    weights = b.op("Softmax", f"{name}.weights", masked, axis=-1)
    mixed = b.op("MatMul", f"{name}.mixed", weights, heads["value"])
    merged = b.op("Transpose", f"{name}.merged", mixed, perm=[0, 2, 1, 3])
    joined = b.op("Reshape", f"{name}.joined", merged, "join_shape")
    return b.linear(f"{name}.output", joined, WIDTH, WIDTH)


def feed_forward(b: Builder, name: str, x: str) -> str:
    """Two products with the Erf form of GELU between them."""
    up = b.linear(f"{name}.up", x, WIDTH, INNER)
    scaled = b.op("Div", f"{name}.scaled", up, "sqrt_two")
    bent = b.op("Erf", f"{name}.erf", scaled)
    shifted = b.op("Add", f"{name}.shifted", bent, "one")
    gated = b.op("Mul", f"{name}.gated", up, shifted)
    halved = b.op("Mul", f"{name}.halved", gated, "half")
    return b.linear(f"{name}.down", halved, INNER, WIDTH)


def constants(b: Builder) -> None:
    """Shapes and factors."""
    b.constant("split_shape", [1, TOKENS, HEADS, WIDTH // HEADS], "int64")
    b.constant("join_shape", [1, TOKENS, WIDTH], "int64")
    b.constant("score_scale", (WIDTH // HEADS) ** -0.5, "float32")
    b.constant("sqrt_two", 2.0**0.5, "float32")
    b.constant("one", 1.0, "float32")
    b.constant("half", 0.5, "float32")
    b.constant("lowest", -1e9, "float32")
    b.constant("mask_axes", [1, 2], "int64")


def encoder() -> onnx.ModelProto:
    """The whole model, without weights."""
    b = Builder()
    constants(b)
    table = b.weight("embedding.table", VOCABULARY, WIDTH)
    words = b.op("Gather", "embedding.words", table, "token_ids", axis=0)
    places = b.weight("embedding.positions", TOKENS, WIDTH)
    x = b.layer_norm("embedding.norm", b.op("Add", "embedding.sum", words, places))
    kept = b.op("Cast", "mask.kept", "attention_mask", to=TensorProto.FLOAT)
    away = b.op("Sub", "mask.away", "one", kept)
    low = b.op("Mul", "mask.low", away, "lowest")
    mask = b.op("Unsqueeze", "mask.bias", low, "mask_axes")
    for layer in range(LAYERS):
        name = f"layer.{layer}"
        seen = attention(b, f"{name}.attention", x, mask)
        x = b.layer_norm(f"{name}.norm1", b.op("Add", f"{name}.residual1", x, seen))
        bent = feed_forward(b, f"{name}.ffn", x)
        x = b.layer_norm(f"{name}.norm2", b.op("Add", f"{name}.residual2", x, bent))
    b.op("Identity", "hidden", x)

    ids = [
        helper.make_tensor_value_info(name, TensorProto.INT64, [1, TOKENS])
        for name in ("token_ids", "attention_mask")
    ]
    result = helper.make_tensor_value_info(
        "hidden", TensorProto.FLOAT, [1, TOKENS, WIDTH]
    )
    graph = helper.make_graph(
        b.nodes, "encoder", [*ids, *b.weights], [result], b.constants
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 10
    entries = {
        "weights": [info.name for info in b.weights],
        "input_ranges": {"token_ids": [0, VOCABULARY - 1], "attention_mask": [0, 1]},
    }
    for key, value in entries.items():
        model.metadata_props.add(key=key, value=json.dumps(value))
    onnx.checker.check_model(model)
    return model


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(__file__).with_name("encoder.onnx")
    parser.add_argument("-o", "--output", type=Path, default=default)
    onnx.save(encoder(), str(parser.parse_args().output))


if __name__ == "__main__":
    main()
