"""The benchmark that sets plans beside other strategies and the real TVM."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import baselines
from benchmarks.tvm_groups import about_sizes, bound, kind
from tests.tuner.frontend.models import model, node, value


def test_a_row_has_every_strategy(patterns_dir: Path) -> None:
    """Our plan is no dearer than any, and its groups are counted by kind."""
    row = baselines.row(patterns_dir / "gemm_bias_gelu_residual.onnx", "sm_90")
    assert set(row.strategies) == set(baselines.STRATEGIES)
    ours = row.strategies["ours"]
    least = min(found.seconds for found in row.strategies.values())
    assert ours.seconds <= least * (1 + 1e-3)
    assert sum(row.rule_groups.values()) == row.strategies["tvm"].kernels
    assert row.rule_groups["anchors"] == 1
    table = "\n".join(baselines.strategy_table([row]))
    assert "ours / unfused / tvm / xla / inductor" in table
    assert f"| {row.model} | {ours.kernels} / " in table


def test_differences_add_up() -> None:
    """What TVM alone counts, and the rest by kind, make the whole difference."""
    found = {
        "views": {"reshape": 3},
        "weights": {"transpose": 2},
        "shapes": {"shape_of": 1},
        "layers": {"softmax": 4, "batch_norm": 5},
        "other": {"matmul+add": 6, "split": 3, "reshape+add": 7, "sum": 1},
    }
    ours = {"anchors": 6, "reductions": 4, "element-wise": 5, "moves": 2}
    told = baselines.differences(ours, found)
    assert told == (
        "3 reshapes alone, which we do not count as kernels; "
        "2 on weights alone, which we run at load; "
        "1 on sizes, which we work out at import; "
        "5 batch norms, which we fold into the convolutions; "
        "+1 reductions (of TVM's: 4 softmax, 1 sum); "
        "+2 element-wise (of TVM's: 7 reshape+add); "
        "+1 moves (of TVM's: 3 split)"
    )
    counted = sum(sum(counts.values()) for counts in found.values())
    assert counted == sum(ours.values()) + 3 + 2 + 1 + 5 + 1 + 2 + 1


@pytest.mark.parametrize(
    ("called", "is_fixed", "is_size", "expected"),
    [
        (["transpose"], True, False, "weights"),
        (["take"], False, True, "shapes"),
        (["reshape"], False, False, "views"),
        (["softmax", "where"], False, False, "layers"),
        (["matmul", "add"], False, False, "other"),
    ],
)
def test_tvms_calls_are_sorted(
    called: list[str], *, is_fixed: bool, is_size: bool, expected: str
) -> None:
    """Work on weights and sizes first, then views, whole layers, and all else."""
    assert kind(called, is_fixed=is_fixed, is_size=is_size) == expected


@pytest.mark.parametrize(
    ("called", "used", "expected"),
    [
        (["shape_of"], ["x"], True),
        (["take"], ["n", "w"], True),
        (["add", "where"], ["n", "x"], False),
        (["add"], ["w"], False),
        (["ones"], [], False),
    ],
)
def test_what_is_made_of_sizes_is_about_sizes(
    called: list[str], used: list[str], *, expected: bool
) -> None:
    """Of sizes and constants alone; one tensor among them makes it a kernel."""
    assert about_sizes(called, used, {"n"}, {"w"}) is expected


def test_open_dimensions_get_the_sizes_that_the_model_states() -> None:
    """TVM is handed the graph that we plan; a dimension of unknown size stays open."""
    made = model(
        [node("Exp", "x", "y")],
        [value("x", ("batch", "other", 4))],
        [value("y", ("batch", "other", 4))],
        metadata={"dim_defaults": {"batch": 3}},
    )
    for tensor in (*bound(made).graph.input, *made.graph.output):
        dims = tensor.type.tensor_type.shape.dim
        assert [d.dim_param or d.dim_value for d in dims] == [3, "other", 4]


def test_an_interpreter_without_tvm_is_told(tmp_path: Path) -> None:
    """The message names the interpreter and what it lacks."""
    path = tmp_path / "absent.onnx"
    with pytest.raises(SystemExit, match="apache-tvm"):
        baselines.real_groups(sys.executable, [path])


def test_a_folder_without_models_is_told(tmp_path: Path) -> None:
    """Nothing to plan is an error, not an empty table."""
    with pytest.raises(SystemExit, match="no ONNX files"):
        baselines.main([str(tmp_path)])
