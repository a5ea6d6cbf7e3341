"""What Schemathesis cannot make up: the bytes of a model and of a bundle.

It loads this module by the name in `schemathesis.toml`. The document shows such bytes
as a text that stands for them; here they take its place. The bundle is one that the
service exported; its path is in `FUSEPLAN_TEST_BUNDLE`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import schemathesis

from service.api.bundles import BUNDLE_EXAMPLE
from service.api.plans import ONNX_EXAMPLE, ONNX_TYPES
from service.bundle import MEDIA_TYPE
from tests.service.api.models import graph_onnx

MEANT = {
    ONNX_EXAMPLE: graph_onnx(),
    BUNDLE_EXAMPLE: Path(os.environ["FUSEPLAN_TEST_BUNDLE"]).read_bytes(),
}


@schemathesis.serializer(MEDIA_TYPE, *sorted(ONNX_TYPES))
def as_meant(_context: Any, value: Any) -> bytes:
    """What an example stands for; bytes as they are; of all else its text."""
    if isinstance(value, str) and value in MEANT:
        return MEANT[value]
    raw = getattr(value, "data", value)
    return raw if isinstance(raw, bytes) else str(value).encode(errors="replace")
