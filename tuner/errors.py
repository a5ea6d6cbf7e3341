"""Errors that the tuner raises on purpose. Each says where, what and what to do."""

from __future__ import annotations


class TunerError(Exception):
    """Base of every deliberate error of this package.

    Attributes:
        code: stable identifier, also used over HTTP.
        where: the node, tensor, file or device that the error is about.
        problem: what is wrong there.
        hint: what the user can do; that of the class where none is given.
    """

    code = "tuner-error"
    usual_hint = ""

    def __init__(self, where: str, problem: str, *, hint: str = "") -> None:
        self.where = where
        self.problem = problem
        self.hint = hint or self.usual_hint
        text = f"{where}: {problem}" if where else problem
        super().__init__(f"{text} ({self.hint})" if self.hint else text)


class InvalidModel(TunerError):
    """The bytes are not a model, or the model breaks its own standard."""

    code = "invalid-model"
    usual_hint = "correct the model there; onnx.checker may say more of it"


class UnsupportedModel(TunerError):
    """The model is valid, but uses something that is refused on purpose."""

    code = "unsupported-model"
    usual_hint = "put another operator or type there, or cut the model before it"


class ModelTooLarge(TunerError):
    """The model exceeds a stated limit."""

    code = "model-too-large"
    usual_hint = "cut the model into smaller ones"


class UnboundDimensions(TunerError):
    """Symbolic dimensions have no size and no default."""

    code = "unbound-dimensions"


class UnknownTarget(TunerError):
    """No device of the catalogue has this name."""

    code = "unknown-target"
    usual_hint = "fuseplan devices lists the targets"


class InvalidOption(TunerError):
    """An option has a value outside its range, or options contradict each other."""

    code = "invalid-option"
    usual_hint = "give another value, or leave the option out"


class ConstraintsUnsatisfiable(TunerError):
    """Pins or caps leave no legal partition."""

    code = "constraints-unsatisfiable"
    usual_hint = "change or drop the pin or cap"


class DeviceUnavailable(TunerError):
    """The device, its driver or its loader is not there."""

    code = "device-unavailable"


class CompileFailed(TunerError):
    """A compiler refused a generated source; a fault of ours, kept with its log."""

    code = "compile-failed"


class KernelFailed(TunerError):
    """A kernel died, hung or ran out of resources while it ran."""

    code = "kernel-failed"


class VerificationFailed(TunerError):
    """Outputs differ from the reference by more than the stated tolerance.

    Attributes:
        max_abs_error, max_rel_error: by how much, as far as it was measured; else 0.
    """

    code = "verification-failed"

    def __init__(
        self,
        where: str,
        problem: str,
        *,
        hint: str = "",
        max_abs_error: float = 0.0,
        max_rel_error: float = 0.0,
    ) -> None:
        super().__init__(where, problem, hint=hint)
        self.max_abs_error = max_abs_error
        self.max_rel_error = max_rel_error


class InternalError(TunerError):
    """A promise between two stages was broken: a fault of ours."""

    code = "internal-error"
