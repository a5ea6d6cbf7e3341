"""The one error of the kernel generator."""

from __future__ import annotations

from tuner.errors import TunerError


class CannotLower(TunerError):
    """No kernel family here can run this graph; the problem says why."""

    code = "cannot-lower"
