"""Models in the JSON form, `fuseplan.graph/1`, read as their ONNX form is."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tuner.frontend.document import Json
from tuner.frontend.from_json import decode, to_onnx
from tuner.frontend.imported import Imported
from tuner.frontend.model import Limits
from tuner.frontend.onnx import read_onnx
from tuner.frontend.to_json import to_json
from tuner.ir.custom import RuleSet

__all__ = ["decode", "read_json", "to_json", "to_onnx"]


def read_json(
    source: str | bytes | Mapping[str, Json],
    *,
    dims: Mapping[str, int] = MappingProxyType({}),
    use_defaults: bool = False,
    limits: Limits | None = None,
    rules: RuleSet | None = None,
) -> Imported:
    """Read a model in the JSON form; the result is that of its ONNX form.

    Raises:
        InvalidModel: the document is not in the form; the message has the JSON path.
        UnsupportedModel: it uses what is refused on purpose.
        ModelTooLarge: it exceeds the limits.
    """
    data = to_onnx(decode(source))
    return read_onnx(
        data, dims=dims, use_defaults=use_defaults, limits=limits, rules=rules
    )
