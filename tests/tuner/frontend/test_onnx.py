"""Reading ONNX models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.conftest import ZOO
from tests.tuner.frontend.models import (
    F32,
    agree,
    evaluate_whole,
    model,
    node,
    ops,
    random_feeds,
    read,
    session,
    value,
)
from tuner.errors import InvalidModel, ModelTooLarge, TunerError
from tuner.frontend.fill import full_model, random_inputs, random_weights
from tuner.frontend.onnx import read_onnx
from tuner.ir.interpreter import evaluate
from tuner.ir.types import DType
from tuner.ir.verify import verify


class TestZoo:
    """Promises about real models."""

    @pytest.mark.parametrize("name", ZOO)
    def test_a_zoo_model_becomes_static_primitives(
        self, zoo_dir: Path, name: str
    ) -> None:
        """Every model is read whole, every shape known, opaque nodes the exception."""
        imported = read_onnx((zoo_dir / f"{name}.onnx").read_bytes(), use_defaults=True)
        graph = imported.graph
        assert verify(graph) is graph
        assert not graph.symbols
        opaque = [n.attributes["op_type"] for n in graph.nodes if n.op == "opaque"]
        assert set(opaque) <= {"GatherND", "GatherElements", "ScatterElements"}
        assert all(n.origins for n in graph.nodes)

    @pytest.mark.parametrize("name", ["bert_base_dynamic", "bert_mini_torchscript"])
    def test_unbound_dimensions_stay_symbols(self, zoo_dir: Path, name: str) -> None:
        """Only the model's own symbols and products of them appear in the shapes."""
        imported = read_onnx((zoo_dir / f"{name}.onnx").read_bytes())
        assert imported.symbols == ("batch", "seq")
        assert set(imported.graph.symbols) <= {
            "batch",
            "seq",
            "batch*seq",
            "12*batch",
        }
        assert imported.assumptions == ("seq <= 512",)

    def test_shape_arithmetic_leaves_no_trace(self, zoo_dir: Path) -> None:
        """A static model of the older exporter has no node that computes shapes."""
        data = (zoo_dir / "bert_mini_torchscript.onnx").read_bytes()
        graph = read_onnx(data, dims={"batch": 1, "seq": 16}).graph
        kinds = {graph.types[out].dtype for n in graph.nodes for out in n.outputs}
        assert DType.I64 not in kinds

    @pytest.mark.parametrize("name", ["train_mlp", "bert_mini_torchscript"])
    def test_a_zoo_model_computes_what_onnx_runtime_computes(
        self, zoo_dir: Path, name: str
    ) -> None:
        """The interpreter on the imported graph agrees with the whole model."""
        data = (zoo_dir / f"{name}.onnx").read_bytes()
        imported = read_onnx(data, use_defaults=True)
        weights, inputs = random_weights(imported, 0), random_inputs(imported, 0)
        ours = evaluate_whole(imported.graph, {**inputs, **weights})
        theirs = session(full_model(imported, weights)).run(None, inputs)
        for name_, expected in zip(imported.graph.outputs, theirs, strict=True):
            scale = float(np.abs(expected).max())
            np.testing.assert_allclose(
                ours[name_], expected, rtol=0, atol=1e-5 * scale, err_msg=name_
            )


class TestNames:
    """Names, origins and composites."""

    def test_tensors_keep_their_names_and_parts_are_numbered(self) -> None:
        """Inside a composite a tensor is NODE/k; what the user named stays."""
        made = model(
            [node("Softmax", "x", "y", name="soft", axis=-1)], [value("x", [4, 8])], "y"
        )
        graph = read(made)
        assert [n.name for n in graph.nodes] == [f"soft/{k}" for k in range(5)]
        assert graph.nodes[-1].outputs == ("y",)
        assert graph.nodes[0].outputs == ("soft/0",)
        assert {n.composite for n in graph.nodes} == {"soft"}
        assert {n.origins for n in graph.nodes} == {("soft",)}

    def test_a_node_of_one_primitive_keeps_its_name(self) -> None:
        """It is no composite."""
        graph = read(model([node("Relu", "x", "y", name="r")], [value("x", [4])], "y"))
        assert graph.nodes[0].name == "r"
        assert graph.nodes[0].composite == ""

    def test_names_that_are_missing_or_taken_twice_come_from_the_output(self) -> None:
        """Then the name is OpType:first_output."""
        nodes = [
            node("Relu", "x", "a"),
            node("Exp", "a", "b", name="twin"),
            node("Exp", "b", "c", name="twin"),
        ]
        graph = read(model(nodes, [value("x", [4])], "c"))
        assert [n.name for n in graph.nodes] == ["Relu:a", "Exp:b", "Exp:c"]

    def test_a_vanished_view_is_listed_with_the_maker_of_its_value(self) -> None:
        """Identity and a cast to the same type leave their names as origins."""
        nodes = [
            node("Exp", "x", "a", name="e"),
            node("Identity", "a", "b", name="i"),
            node("Cast", "b", "c", name="c", to=F32),
            node("Neg", "c", "y", name="n"),
        ]
        graph = read(model(nodes, [value("x", [4])], "y"))
        assert ops(graph) == ["exp", "neg"]
        assert graph.nodes[0].origins == ("e", "i", "c")

    def test_parts_that_do_not_feed_each_other_are_no_composite(self) -> None:
        """The slices of a Split may lie in different kernels."""
        made = model(
            [node("Split", "x", "a b", axis=0, num_outputs=2)],
            [value("x", [4, 2])],
            "a b",
        )
        assert {n.composite for n in read(made).nodes} == {""}

    def test_an_output_with_a_second_name_is_a_view(self) -> None:
        """Each result is delivered under its own name, inputs and constants too."""
        nodes = [
            node("Exp", "x", "a"),
            node("Identity", "a", "b"),
            node("Identity", "x", "c"),
            node("Shape", "x", "s"),
        ]
        graph = read(model(nodes, [value("x", [4])], "a b c s x"))
        assert graph.outputs == ("a", "b", "c", "s", "x")
        assert ops(graph) == ["exp", "reshape", "reshape", "reshape"]
        results = evaluate(graph, random_feeds(graph))
        assert results["s"].tolist() == [4]
        np.testing.assert_array_equal(results["a"], results["b"])

    def test_a_name_of_ours_that_the_user_has_too_steps_aside(self) -> None:
        """A user's tensor may be called as a part of a composite would be."""
        nodes = [
            node("Exp", "x", "s/0", name="s/1"),
            node("Softmax", "s/0", "y", name="s"),
        ]
        graph = read(model(nodes, [value("x", [4, 8])], "y"))
        assert verify(graph) is graph
        assert graph.nodes[0].outputs == ("s/0",)

    def test_a_shared_name_is_no_name_for_onnx_runtime_either(self) -> None:
        """It takes no two nodes of one name; the model to compare with has none."""
        nodes = [
            node("Relu", "x", "a", name="same"),
            node("Tanh", "a", "b", name="same"),
            node("Neg", "b", "y", name="own"),
        ]
        made = model(nodes, [value("x", [2])], "y")
        found = read_onnx(made.SerializeToString())
        assert session(found.onnx).run(None, {"x": np.ones(2, np.float32)})
        given = [n.name for n in onnx.ModelProto.FromString(found.onnx).graph.node]
        assert given == ["", "", "own"]
        assert [n.name for n in found.graph.nodes] == ["Relu:a", "Tanh:b", "own"]


class TestSources:
    """Inputs, weights, constants."""

    def test_large_floats_are_weights_and_the_rest_are_constants(self) -> None:
        """The border is 256 bytes; integers are constants at any size."""
        constants = {
            "w": np.ones((65,), np.float32),
            "c": np.full((64,), 2, np.float32),
            "i": np.zeros((65,), np.int64),
        }
        nodes = [
            node("Gather", "w i", "g"),
            node("Gather", "c i", "h"),
            node("Add", "g h", "a"),
            node("Mul", "a x", "y"),
        ]
        imported = read_onnx(
            model(nodes, [value("x", [65])], "y", constants).SerializeToString()
        )
        assert imported.graph.weights == ("w",)
        assert set(imported.graph.constants) == {"c", "i"}
        np.testing.assert_array_equal(imported.values["w"], constants["w"])

    def test_a_large_constant_node_is_a_weight(self) -> None:
        """Where the value is written makes no difference."""
        tensor = onnx.numpy_helper.from_array(np.ones((9, 9), np.float32))
        nodes = [node("Constant", "", "w", value=tensor), node("Add", "x w", "y")]
        imported = read_onnx(
            model(nodes, [value("x", [9, 9])], "y").SerializeToString()
        )
        assert imported.graph.weights == ("w",)
        assert imported.values["w"].shape == (9, 9)

    def test_initializers_of_old_models_are_no_inputs(self) -> None:
        """Before IR version 4 they are listed among the inputs too."""
        made = model(
            [node("Add", "x c", "y")],
            [value("x", [2]), value("c", [2])],
            "y",
            {"c": np.ones(2, np.float32)},
        )
        assert read(made).inputs == ("x",)

    def test_unused_inputs_stay_and_unused_constants_go(self) -> None:
        """The caller feeds inputs by position."""
        made = model(
            [node("Exp", "x", "y")],
            [value("unused", [3]), value("x", [2])],
            "y",
            {"c": np.ones(2, np.float32)},
        )
        graph = read(made)
        assert graph.inputs == ("unused", "x")
        assert not graph.constants

    def test_bf16_constants_are_held_as_bits(self) -> None:
        """As the type says, and the interpreter reads them right."""
        tensor = helper.make_tensor("c", TensorProto.BFLOAT16, [2], [1.5, -2.0])
        made = model(
            [node("Mul", "x c", "y")], [value("x", [2], TensorProto.BFLOAT16)], "y"
        )
        made.graph.initializer.append(tensor)
        graph = read(made)
        assert graph.constants["c"].tolist() == [0x3FC0, 0xC000]
        out = evaluate(graph, {"x": np.array([0x3F80, 0x4000], np.uint16)})
        assert out["y"].tolist() == [0x3FC0, 0xC080]

    def test_dead_nodes_are_left_out(self) -> None:
        """What no output needs is not in the graph."""
        nodes = [node("Exp", "x", "y"), node("Neg", "x", "dead")]
        assert ops(read(model(nodes, [value("x", [2])], "y"))) == ["exp"]

    def test_nodes_are_sorted(self) -> None:
        """A model whose nodes are out of order is read like its ordered twin."""
        nodes = [node("Neg", "a", "y"), node("Exp", "x", "a")]
        assert ops(read(model(nodes, [value("x", [2])], "y"))) == ["exp", "neg"]


class TestSparse:
    """Sparse tensors of the model."""

    @pytest.mark.parametrize("form", ["places", "coordinates"])
    def test_zeros_are_written_out(self, form: str) -> None:
        """A sparse initializer and a sparse constant are tensors like any other."""
        dense = np.zeros((4, 5), np.float32)
        dense[0, 1], dense[1, 0], dense[2, 3] = 1, 2, -3
        places = np.flatnonzero(dense) if form == "places" else np.argwhere(dense)
        sparse = helper.make_sparse_tensor(
            numpy_helper.from_array(dense[dense != 0], "w"),
            numpy_helper.from_array(places.astype(np.int64), "at"),
            [4, 5],
        )
        nodes = [
            helper.make_node("Constant", [], ["c"], sparse_value=sparse),
            node("MatMul", "x w", "m"),
            node("MatMul", "x c", "n"),
            node("Add", "m n", "y"),
        ]
        made = model(nodes, [value("x", [2, 4])], "y")
        made.graph.sparse_initializer.append(sparse)
        graph = read(made)
        x = random_feeds(graph)["x"]
        (y,) = evaluate(graph, {"x": x}).values()
        np.testing.assert_allclose(y, 2 * (x @ dense), rtol=1e-6)

    @pytest.mark.parametrize(
        ("at", "dims", "kind", "text"),
        [
            ([20], [4, 5], InvalidModel, "w: its indices do not fit"),
            ([-1], [4, 5], InvalidModel, "w: its indices do not fit"),
            ([[4, 0]], [4, 5], InvalidModel, "w: its indices do not fit"),
            ([0], [1 << 20, 1 << 20], ModelTooLarge, "w: is a sparse tensor of f32"),
        ],
    )
    def test_what_does_not_fit_is_refused(
        self, at: list[int], dims: list[int], kind: type[TunerError], text: str
    ) -> None:
        """Places beyond the tensor, and zeros that no model could hold."""
        sparse = helper.make_sparse_tensor(
            numpy_helper.from_array(np.ones(1, np.float32), "w"),
            numpy_helper.from_array(np.asarray(at, np.int64), "at"),
            dims,
        )
        made = model([node("MatMul", "x w", "y")], [value("x", [2, 4])], "y")
        made.graph.sparse_initializer.append(sparse)
        with pytest.raises(kind, match=text):
            read(made)


class TestDimensions:
    """Symbolic dimensions."""

    def test_a_bound_dimension_is_a_number_everywhere(self) -> None:
        """Reshape targets made from it are numbers too."""
        nodes = [
            node("Shape", "x", "s", start=0, end=1),
            node("Concat", "s k", "t", axis=0),
            node("Reshape", "x t", "y"),
        ]
        made = model(
            nodes,
            [value("x", ["n", 4, 6])],
            "y",
            {"k": np.array([-1], np.int64)},
        )
        assert read(made).types["y"].shape == ("n", 24)
        imported = read_onnx(made.SerializeToString(), dims={"n": 3})
        assert imported.graph.types["y"].shape == (3, 24)
        assert dict(imported.dims) == {"n": 3}
        assert imported.symbols == ()

    def test_the_models_defaults_bind_what_the_caller_does_not(self) -> None:
        """Only if asked for; the caller's size wins."""
        made = model(
            [node("Exp", "x", "y")],
            [value("x", ["n", "m"])],
            "y",
            metadata={"dim_defaults": {"n": 2, "m": 3}},
        )
        data = made.SerializeToString()
        assert read_onnx(data).symbols == ("n", "m")
        imported = read_onnx(data, dims={"m": 5}, use_defaults=True)
        assert imported.graph.types["y"].shape == (2, 5)

    def test_an_extent_without_a_name_is_called_after_its_tensor(self) -> None:
        """So that it can be told apart."""
        made = model([node("Exp", "x", "y")], [value("x", [2, None])], "y")
        assert read(made).types["y"].shape == (2, "x.1")

    def test_what_symbols_cannot_decide_is_assumed_and_said(self) -> None:
        """A slice up to a symbol takes for granted that there is enough."""
        nodes = [
            node("Shape", "x", "n"),
            node("Slice", "table z n", "y"),
        ]
        made = model(
            nodes,
            [value("x", ["n"]), value("table", [100])],
            "y",
            {"z": np.array([0], np.int64)},
        )
        imported = read_onnx(made.SerializeToString())
        assert imported.graph.types["y"].shape == ("n",)
        assert imported.assumptions == ("n <= 100",)


class TestOperators:
    """Single operators whose import has a point of its own."""

    def test_batch_norm_at_inference_is_a_scale_and_a_shift(self) -> None:
        """Statistics meet the data in one product and one sum."""
        made = model(
            [node("BatchNormalization", "x s b m v", "y")],
            [value("x", [2, 3, 4, 4])]
            + [value(n, [3]) for n in "sbm"]
            + [value("v", [3])],
            "y",
            metadata={"input_ranges": {"v": [0.5, 1.5]}},
        )
        graph = read(made)
        touched = [n for n in graph.nodes if graph.types[n.outputs[0]].elements == 96]
        assert [n.op for n in touched] == ["mul", "add"]

    def test_batch_norm_in_training_mode_has_live_statistics(self) -> None:
        """Mean and variance of the batch, running ones as further outputs."""
        made = model(
            [node("BatchNormalization", "x s b m v", "y rm rv", training_mode=1)],
            [value("x", [2, 3, 4, 4]), *(value(n, [3]) for n in "sbmv")],
            [value("y", [2, 3, 4, 4]), value("rm", [3]), value("rv", [3])],
        )
        assert read_onnx(made.SerializeToString()).is_training
        graph = agree(made)
        assert "reduce_sum" in ops(graph)

    def test_gemm_is_taken_apart(self) -> None:
        """Transposes, product, factors and bias, each only where it does something."""
        made = model(
            [node("Gemm", "a b c", "y", transB=1, alpha=0.5, beta=2.0)],
            [value("a", [3, 4]), value("b", [5, 4]), value("c", [5])],
            [value("y", [3, 5])],
        )
        assert ops(agree(made)) == ["transpose", "matmul", "mul", "mul", "add"]
        plain = model(
            [node("Gemm", "a b", "y")], [value("a", [3, 4]), value("b", [4, 5])], "y"
        )
        assert ops(read(plain)) == ["matmul"]

    def test_a_resize_that_repeats_is_a_broadcast(self) -> None:
        """Views around one expand."""
        made = model(
            [
                node(
                    "Resize",
                    "x - s",
                    "y",
                    mode="nearest",
                    nearest_mode="floor",
                    coordinate_transformation_mode="asymmetric",
                )
            ],
            [value("x", [1, 2, 3, 3])],
            [value("y", [1, 2, 6, 6])],
            {"s": np.array([1, 1, 2, 2], np.float32)},
        )
        assert ops(agree(made)) == ["reshape", "expand", "reshape"]

    def test_a_known_scalar_index_is_a_slice(self) -> None:
        """Not a table look-up."""
        made = model(
            [node("Gather", "x i", "y", axis=1)],
            [value("x", [2, 5, 3])],
            [value("y", [2, 3])],
            {"i": np.array(-2, np.int64)},
        )
        assert ops(agree(made)) == ["slice", "reshape"]

    @pytest.mark.parametrize("opset", [9, 11, 13, 18])
    def test_axes_are_read_from_where_the_opset_has_them(self, opset: int) -> None:
        """Attribute or input, the graph is the same."""
        axes = np.array([1], np.int64)
        if opset < 13:
            made = model(
                [
                    node("Unsqueeze", "x", "a", axes=[1]),
                    node("ReduceSum", "a", "y", axes=[1], keepdims=0),
                ],
                [value("x", [2, 3])],
                [value("y", [2, 3])],
                opset=opset,
            )
        else:
            made = model(
                [
                    node("Unsqueeze", "x k", "a"),
                    node("ReduceSum", "a k", "y", keepdims=0),
                ],
                [value("x", [2, 3])],
                [value("y", [2, 3])],
                {"k": axes},
                opset=opset,
            )
        assert ops(agree(made)) == ["reshape", "reduce_sum"]

    @pytest.mark.parametrize("opset", [9, 11])
    def test_old_softmax_works_on_all_axes_from_its_axis(self, opset: int) -> None:
        """Before opset 13 the data is seen as a matrix."""
        made = model(
            [node("Softmax", "x", "a", axis=1), node("LogSoftmax", "x", "b", axis=2)],
            [value("x", [2, 3, 4])],
            [value("a", [2, 3, 4]), value("b", [2, 3, 4])],
            opset=opset,
        )
        agree(made)

    @pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID"])
    def test_automatic_pads_of_convolutions_and_pools(self, mode: str) -> None:
        """They are worked out from the extents."""
        made = model(
            [
                node("Conv", "x w", "a", auto_pad=mode, strides=[2, 2]),
                node("MaxPool", "x", "b", auto_pad=mode, kernel_shape=[2, 2]),
                node("AveragePool", "x", "c", auto_pad=mode, kernel_shape=[3, 3]),
            ],
            [value("x", [1, 2, 7, 8]), value("w", [4, 2, 3, 3])],
            [value(n, [None] * 4) for n in "abc"],
        )
        agree(made)

    def test_grouped_and_dilated_convolutions(self) -> None:
        """Depthwise, grouped, one and three spatial axes, with bias."""
        made = model(
            [
                node("Conv", "x w b", "a", group=4, pads=[1, 1, 1, 1]),
                node("Conv", "x v", "c", group=2, dilations=[2, 2]),
                node("Conv", "p q", "d", strides=[2]),
                node("Conv", "r t", "e", pads=[1, 0, 0, 0, 1, 1]),
            ],
            [
                value("x", [2, 4, 6, 6]),
                value("w", [8, 1, 3, 3]),
                value("b", [8]),
                value("v", [6, 2, 3, 2]),
                value("p", [2, 3, 9]),
                value("q", [5, 3, 4]),
                value("r", [1, 2, 4, 5, 6]),
                value("t", [3, 2, 2, 3, 2]),
            ],
            [value(n, [None] * r) for n, r in zip("acde", (4, 4, 3, 5), strict=True)],
        )
        agree(made)

    @pytest.mark.parametrize(
        ("equation", "left", "right"),
        [
            ("bhid,bhjd->bhij", [2, 3, 4, 5], [2, 3, 6, 5]),
            ("bhij,bhjd->bihd", [2, 3, 4, 6], [2, 3, 6, 5]),
            ("ik,kj", [4, 5], [5, 3]),
            ("abc,cd->b", [2, 3, 4], [4, 5]),
            ("i,j->ji", [4], [5]),
            ("ab,ab->", [2, 3], [2, 3]),
        ],
    )
    def test_einsum_becomes_one_product(
        self, equation: str, left: list[int], right: list[int]
    ) -> None:
        """With transposes, sums and views around it."""
        made = model(
            [node("Einsum", "a b", "y", equation=equation)],
            [value("a", left), value("b", right)],
            [value("y", [None] * len(equation.partition("->")[2] or "ij"))]
            if not equation.endswith("->")
            else [value("y", [])],
        )
        assert ops(agree(made)).count("matmul") == 1

    @pytest.mark.parametrize(
        ("equation", "shapes", "products"),
        [
            ("iji->j", [[3, 2, 3]], 0),
            ("iii->i", [[3, 3, 3]], 0),
            ("bhii->hb", [[2, 3, 4, 4]], 0),
            ("ii,ij->j", [[3, 3], [3, 4]], 1),
            ("i...->...", [[3, 2, 4]], 0),
            ("...ij,...jk->...ik", [[2, 1, 3, 4], [1, 5, 4, 6]], 1),
            ("...ij,jk->...ik", [[2, 5, 3, 4], [4, 6]], 1),
            ("a...,...->...a", [[2, 1, 3], [4, 1]], 1),
            ("ij,jk->ik", [[2, 1], [3, 4]], 1),
            ("ij,ij->ij", [[1, 4], [3, 4]], 1),
            ("ab,bc,cd->ad", [[2, 3], [3, 4], [4, 5]], 2),
            ("ab,ab,ab->b", [[2, 3], [2, 3], [2, 3]], 2),
            ("bhid,bhjd,hde->bhije", [[2, 3, 4, 5], [2, 3, 6, 5], [3, 5, 2]], 2),
        ],
    )
    def test_einsum_of_any_form_is_taken_apart(
        self, equation: str, shapes: list[list[int]], products: int
    ) -> None:
        """Diagonals, an ellipsis that broadcasts, several operands in their order."""
        names = "abc"[: len(shapes)]
        result = np.einsum(equation, *(np.zeros(shape) for shape in shapes))
        made = model(
            [node("Einsum", " ".join(names), "y", equation=equation)],
            [value(name, shape) for name, shape in zip(names, shapes, strict=True)],
            [value("y", result.shape)],
        )
        found = ops(agree(made))
        assert "opaque" not in found
        assert found.count("matmul") == products

    def test_a_branch_whose_condition_is_known_takes_the_place_of_its_if(self) -> None:
        """Exporters leave conditions on shapes behind."""

        def branch(op: str, result: str) -> onnx.GraphProto:
            return helper.make_graph(
                [node(op, "a", result)], op, [], [value(result, [])]
            )

        nodes = [
            node("Exp", "x", "a"),
            node("Shape", "a", "s"),
            node("Size", "s", "r"),
            node("Equal", "r two", "c"),
            node(
                "If",
                "c",
                "y",
                name="choice",
                then_branch=branch("Neg", "t"),
                else_branch=branch("Abs", "e"),
            ),
        ]
        made = model(nodes, [value("x", [2, 3])], "y", {"two": np.array(2, np.int64)})
        graph = read(made)
        assert ops(graph) == ["exp", "neg"]
        assert graph.nodes[1].origins == ("choice",)
        assert graph.nodes[1].outputs == ("y",)

    def test_model_functions_are_inlined(self) -> None:
        """Their nodes count as the user's."""
        made = model([], [value("x", [4])], "y")
        made.opset_import.append(helper.make_opsetid("mine", 1))
        made.graph.node.append(helper.make_node("Twice", ["x"], ["y"], domain="mine"))
        made.functions.append(
            helper.make_function(
                "mine",
                "Twice",
                ["a"],
                ["c"],
                [node("Exp", "a", "b"), node("Exp", "b", "c")],
                [helper.make_opsetid("", 20)],
            )
        )
        assert ops(read(made)) == ["exp", "exp"]
