"""One renderer for all languages; a language is a `Dialect` value."""

from __future__ import annotations

from tuner.kernel.render.dialects import CUDA, OPENCL
from tuner.kernel.render.kernel import render

__all__ = ["CUDA", "OPENCL", "render"]
