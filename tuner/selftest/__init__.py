"""Does this machine run our kernels? ``python -m tuner.selftest --device cuda``.

Needs a source tree, NumPy, onnx and the device's own binding (CuPy or PyOpenCL), and
nothing else. The report is written again after every stage, so that a machine that
hangs or is taken away leaves what was found so far. What could poison a process runs
in a child of its own.
"""

from tuner.selftest.stages import (
    FAILED,
    OK,
    UNAVAILABLE,
    WRONG,
    SelfTest,
    main,
)

__all__ = ["FAILED", "OK", "UNAVAILABLE", "WRONG", "SelfTest", "main"]
