"""The zoo benchmark's tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.zoo import (
    Ran,
    generated_share,
    is_whole_call,
    kind_of,
    kind_table,
    main,
    models_in,
    run_table,
)
from tuner.model import load
from tuner.pipeline import make_plan
from tuner.plan import GENERATED, Options

KINDS = {
    "adamw_step": "optimiser",
    "bert_mini_torchscript": "transformer",
    "llama_small": "transformer",
    "mobilenet_v2": "CNN",
    "resnet18": "CNN",
    "sd_unet_small": "CNN",
    "train_mlp": "training",
    "train_transformer_layer": "training",
}


def _ran(kind: str, plan: float, *, whole: bool = False, verified: bool = True) -> Ran:
    return Ran(
        model="m",
        kind=kind,
        whole_call=whole,
        generated_share=0.0,
        verified=verified,
        max_rel_error=0.0,
        plan_seconds=plan,
        unfused_seconds=1.0,
        reference_seconds=1.0,
        contended=False,
        message="",
    )


@pytest.mark.parametrize("name", KINDS)
def test_the_kind_of_a_model_is_told_from_its_graph(name: str, zoo_dir: Path) -> None:
    """No name is needed to tell what a model is for."""
    model = load((zoo_dir / f"{name}.onnx").read_bytes())
    assert kind_of(model) == KINDS[name]


def test_a_whole_call_has_no_generated_share(zoo_dir: Path) -> None:
    """A plan of kernels shares its time out; what is one library call says so."""
    model = load((zoo_dir / "adamw_step.onnx").read_bytes())
    plan = make_plan(model, "cpu", Options())
    assert not is_whole_call(plan)
    assert all(kernel.family in GENERATED for kernel in plan.kernels)
    seconds = {kernel.name: 1.0 for kernel in plan.kernels}
    assert generated_share(plan, seconds) == pytest.approx(1.0)


def test_means_are_of_each_kind_and_count_a_whole_call_as_one() -> None:
    """A failed plan counts nowhere, a library call as 1 whatever it took."""
    rows = [
        _ran("CNN", 0.25),
        _ran("transformer", 0.25),
        _ran("transformer", 0.125, whole=True),
        _ran("training", 1e-3, verified=False),
    ]
    found = list(kind_table(rows))
    assert found[2:] == [
        "| CNN | 1 | 0 | 4.00 | 4.00 |",
        "| transformer | 2 | 1 | 1.00 | 2.00 |",
        "| all but CNNs | 2 | 1 | 1.00 | 2.00 |",
    ]


def test_a_whole_call_shows_what_was_measured_beside() -> None:
    """The library beside itself counts as 1; what the clock said is not hidden."""
    *_, library, plan = run_table(
        [_ran("training", 1.25, whole=True), _ran("transformer", 0.8)]
    )
    assert "| 1.00 (one library call, 0.80 measured) |" in library
    assert "| 1.25 |" in plan


def test_some_models_of_a_folder_can_be_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names choose among the files; an unknown one is told with the known."""
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.onnx").write_bytes(b"")
    assert [p.stem for p in models_in(tmp_path)] == ["a", "b", "c"]
    assert [p.stem for p in models_in(tmp_path, ["c", "a"])] == ["a", "c"]
    assert models_in(tmp_path / "b.onnx") == [tmp_path / "b.onnx"]
    with pytest.raises(SystemExit):
        main([str(tmp_path), "--only", "a", "d"])
    assert "no model d; there are a, b, c" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([str(tmp_path / "missing")])
    assert "no ONNX file" in capsys.readouterr().err
