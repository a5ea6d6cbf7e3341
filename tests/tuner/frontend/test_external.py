"""Models whose tensors lie in files beside them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import external_data_helper

from tests.tuner.frontend.models import model, node, value
from tuner.errors import InvalidModel, UnsupportedModel
from tuner.frontend.external import gather
from tuner.frontend.onnx import read_onnx
from tuner.frontend.strip import strip
from tuner.model import load

_WEIGHT = np.linspace(-1, 1, 16 * 16, dtype=np.float32).reshape(16, 16)


def _saved(folder: Path) -> bytes:
    """A model with a weight and a shape, both in another file."""
    made = model(
        [node("MatMul", "x w", "a"), node("Reshape", "a s", "y")],
        [value("x", [2, 16])],
        "y",
        {"w": _WEIGHT, "s": np.array([4, 8])},
    )
    onnx.save_model(
        made,
        folder / "model.onnx",
        save_as_external_data=True,
        location="model.data",
        size_threshold=0,
    )
    return (folder / "model.onnx").read_bytes()


def test_a_model_is_read_with_the_files_beside_it(tmp_path: Path) -> None:
    """Weights and shapes have the values that were saved."""
    found = read_onnx(gather(_saved(tmp_path), tmp_path))
    np.testing.assert_array_equal(found.values["w"], _WEIGHT)
    assert found.graph.types["y"].shape == (4, 8)


def test_a_weight_without_its_file_is_left_out(tmp_path: Path) -> None:
    """A plan needs no values: the key is that of the whole model, and of the light."""
    made = model(
        [node("MatMul", "x w", "y")], [value("x", [2, 16])], "y", {"w": _WEIGHT}
    )
    whole = made.SerializeToString()
    external_data_helper.convert_model_to_external_data(made, location="gone.data")
    external_data_helper.set_external_data(made.graph.initializer[0], "gone.data")
    made.graph.initializer[0].ClearField("raw_data")
    alone = gather(made.SerializeToString(), tmp_path)
    found = load(alone)
    assert found.imported.values == {}
    assert found.graph.weights
    keys = {load(data).fingerprint for data in (whole, alone, strip(alone))}
    assert keys == {found.fingerprint}


def test_a_shape_without_its_file_is_refused(tmp_path: Path) -> None:
    """What decides the graph must be there; the refusal says what to do."""
    data = _saved(tmp_path)
    (tmp_path / "model.data").unlink()
    with pytest.raises(UnsupportedModel, match="keep that file beside the model"):
        read_onnx(gather(data, tmp_path))


def test_a_place_outside_of_the_folder_is_never_read(tmp_path: Path) -> None:
    """A model cannot name a file that is not its own."""
    (tmp_path / "in").mkdir()
    (tmp_path / "secret").write_bytes(bytes(1024))
    made = model(
        [node("MatMul", "x w", "y")], [value("x", [2, 16])], "y", {"w": _WEIGHT}
    )
    tensor = made.graph.initializer[0]
    external_data_helper.set_external_data(tensor, "../secret")
    tensor.ClearField("raw_data")
    with pytest.raises(InvalidModel, match="w: its data cannot be read"):
        gather(made.SerializeToString(), tmp_path / "in")


def test_a_length_that_is_no_number_is_refused(tmp_path: Path) -> None:
    """Damage in the message is told like damage in the file."""
    made = onnx.ModelProto.FromString(_saved(tmp_path))
    for entry in made.graph.initializer[0].external_data:
        if entry.key == "length":
            entry.value = "many"
    with pytest.raises(InvalidModel, match="cannot be read from another file"):
        gather(made.SerializeToString(), tmp_path)


def test_a_file_that_is_too_short_is_refused(tmp_path: Path) -> None:
    """Half a file is no weight."""
    data = _saved(tmp_path)
    (tmp_path / "model.data").write_bytes(b"1234")
    with pytest.raises(InvalidModel):
        read_onnx(gather(data, tmp_path))


@pytest.mark.parametrize("data", [b"", b"location", b'{"location": 1}'])
def test_bytes_of_another_kind_stay_as_they_are(data: bytes, tmp_path: Path) -> None:
    """Only a model has files beside it."""
    assert gather(data, tmp_path) == data
