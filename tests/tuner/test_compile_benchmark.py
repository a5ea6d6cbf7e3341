"""The benchmark of what compiling takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from onnx import parser

from benchmarks.compile import Compiled, available, distinct, main, planned, row, table
from benchmarks.scale import transformer
from tuner.model import load

_LITTLE = """
<ir_version: 8, opset_import: ["" : 17]>
little (float[4, 8] x, float[4, 8] y) => (float[4, 8] a, float[8, 4] b) {
    s = Add(x, y)
    a = Softmax(s)
    b = Transpose(y)
}
"""


def _little() -> bytes:
    content: bytes = parser.parse_model(_LITTLE).SerializeToString()
    return content


@pytest.mark.parametrize("compiler", available())
def test_a_second_process_finds_what_the_first_compiled(compiler: str) -> None:
    """Every distinct kernel is compiled, and later only read."""
    found = row("little", load(_little()), compiler, rounds=1)
    assert found.kernels >= found.distinct >= 1
    assert found.text_bytes > 0
    assert 0 < found.warm_seconds < found.cold_seconds


def test_equal_layers_are_compiled_once() -> None:
    """Kernels grow with the layers of a decoder, texts do not."""
    two, three = (
        planned(load(transformer(layers).SerializeToString()), "sm_90")
        for layers in (2, 3)
    )
    assert len(three.kernels) > len(two.kernels)
    texts = [{s.digest for s in distinct(plan, "cuda")} for plan in (two, three)]
    assert texts[0] == texts[1]


def test_the_table_has_a_row_for_each_compiler() -> None:
    """Times are shown for all kernels and for one; a plan of calls has none."""
    one = Compiled(
        model="m",
        compiler="nvrtc",
        kernels=6,
        distinct=4,
        text_bytes=9000,
        cold_seconds=2.0,
        warm_seconds=0.02,
    )
    none = Compiled(
        model="n",
        compiler="opencl",
        kernels=0,
        distinct=0,
        text_bytes=0,
        cold_seconds=0.0,
        warm_seconds=0.0,
    )
    found = list(table(iter((one, none))))[2:]
    assert found == [
        "| m | nvrtc | 6 | 4 | 9 | 2.00 | 0.020 | 500 | 5.0 | 100 |",
        "| n | opencl | 0 | 0 | 0 | 0.00 | 0.000 | 0 | 0.0 | none |",
    ]


@pytest.mark.skipif(not available(), reason="no compiler is here")
def test_rows_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints a table and writes what it has measured."""
    (tmp_path / "little.onnx").write_bytes(_little())
    out = tmp_path / "rows.json"
    main([str(tmp_path), "--layers", "", "--rounds", "1", "--json", str(out)])
    rows = json.loads(out.read_text())
    assert [each["compiler"] for each in rows] == list(available())
    assert "| little |" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([str(tmp_path), "--only", "large"])
    assert "no model large" in capsys.readouterr().err
