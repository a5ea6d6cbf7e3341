"""The benchmark that times import and plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.planning import Row, main, table


def _row(model: str, seconds: float, *, complete: bool = True) -> Row:
    return Row(
        model=model,
        target="h100-sxm",
        import_seconds=seconds / 4,
        plan_seconds=3 * seconds / 4,
        seconds=seconds,
        processor_seconds=seconds / 2,
        kernels=7,
        gap=1e-8,
        complete=complete,
    )


def test_rows_of_real_models_are_told(
    patterns_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each model that was asked for has one row, with times that were taken of it."""
    names = ["gemm_bias_gelu_residual", "choice4"]
    place = tmp_path / "rows.json"
    main(
        [
            *(str(patterns_dir), "--only", *names, "--repeats", "2"),
            *("--target", "sm_90", "--json", str(place)),
        ]
    )
    rows = json.loads(place.read_text(encoding="utf-8"))["rows"]
    assert sorted(row["model"] for row in rows) == sorted(names)
    for row in rows:
        assert row["target"] == "h100-sxm"
        assert 0 < row["import_seconds"] < row["seconds"]
        assert 0 < row["plan_seconds"] < row["seconds"]
        assert row["processor_seconds"] > 0
        assert row["kernels"] >= 1
        assert 0 <= row["gap"] <= 1e-6
    printed = capsys.readouterr().out
    assert all(f"| {name} | " in printed for name in names)


def test_median_and_worst_are_of_both_times() -> None:
    """The last line is what stands against a limit on import and plan together."""
    rows = [_row("a", 0.5), _row("b", 2.0), _row("c", 1.0, complete=False)]
    *told, last = table(rows)
    assert last == "\nmedian 1.000 s, worst 2.000 s (b)"
    assert told[2] == "| a | 0.125 | 0.375 | 0.500 | 0.250 | 7 | 1.0e-08 |"
    assert told[4].endswith("| 1.0e-08 (incomplete) |")


def test_the_time_of_the_real_tvm_stands_beside() -> None:
    """A ratio above one says that ours takes longer; a model that it cannot is told."""
    real = {
        "models": {
            "a": {"seconds": {"import": 0.2, "FuseOps": 0.05}},
            "b": {"error": "ValueError: no"},
        }
    }
    told = list(table([_row("a", 0.5), _row("b", 2.0)], real))
    assert told[0].endswith("| TVM s | ratio |")
    assert told[2].endswith("| 0.250 | 2.00 |")
    assert told[3].endswith("| cannot: ValueError: no | |")


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (["--repeats", "0"], "--repeats 0: at least 1"),
        (["--target", "sm_9"], "no such device"),
        (["--only", "nothing"], "no model nothing"),
    ],
)
def test_wrong_options_are_told(
    more: list[str],
    problem: str,
    patterns_dir: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nothing is timed, and the message names the option."""
    with pytest.raises(SystemExit) as raised:
        main([str(patterns_dir), *more])
    assert raised.value.code == 2
    assert problem in capsys.readouterr().err
