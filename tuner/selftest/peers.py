"""The same arithmetic as its user would write it elsewhere, timed in its own process.

Each form is written once, for any namespace with NumPy's names; a peer says how an
array gets there, how a function is compiled, and how one waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from statistics import median
from time import perf_counter
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from tuner.errors import DeviceUnavailable, VerificationFailed

REPEATS: Final = 15
_TOLERANCE: Final = 1e-4
Form = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A library of arrays.

    Attributes:
        module: its functions by NumPy's names.
        put: a NumPy array as one of the library's on the device.
        get: back again.
        wait: until the device is idle.
        compiled: a function as the library runs it best.
    """

    module: Any
    put: Callable[[Any], Any]
    get: Callable[[Any], Any]
    wait: Callable[[Any], object]
    compiled: Callable[[Form], Form]


def _softmax(xp: Any, x: Any) -> Any:
    exp = xp.exp(x - xp.amax(x, axis=-1, keepdims=True))
    return exp / xp.sum(exp, axis=-1, keepdims=True)


def _layer_norm(xp: Any, x: Any, scale: Any, shift: Any) -> Any:
    centred = x - xp.mean(x, axis=-1, keepdims=True)
    spread = xp.mean(centred * centred, axis=-1, keepdims=True)
    return centred / xp.sqrt(spread + 1e-5) * scale + shift


def _swiglu(xp: Any, gate: Any, x: Any) -> Any:
    return gate / (1 + xp.exp(-gate)) * x


def _transpose_add(xp: Any, x: Any, y: Any) -> Any:
    return xp.transpose(x, (1, 0)) + y if xp is np else x.T + y


FORMS: Final[Mapping[str, tuple[Form, tuple[tuple[int, ...], ...]]]] = MappingProxyType(
    {
        "softmax": (_softmax, ((1024, 1024),)),
        "layer_norm": (_layer_norm, ((1024, 768), (768,), (768,))),
        "swiglu": (_swiglu, ((1024, 4096), (1024, 4096))),
        "transpose_add": (_transpose_add, ((1024, 1536), (1536, 1024))),
    }
)


def _numpy(kind: str) -> Peer:
    del kind
    return Peer(
        module=np,
        put=np.asarray,
        get=np.asarray,
        wait=lambda _: None,
        compiled=lambda form: form,
    )


def _cupy(kind: str) -> Peer:
    del kind
    import cupy  # type: ignore[import-untyped]  # noqa: PLC0415

    return Peer(
        module=cupy,
        put=cupy.asarray,
        get=cupy.asnumpy,
        wait=lambda _: cupy.cuda.Device().synchronize(),
        compiled=lambda form: form,
    )


def _torch(kind: str) -> Peer:
    torch = import_module("torch")  # no dependency of ours: used where it is there

    def wait(result: Any) -> None:
        del result
        if kind == "cuda":
            torch.cuda.synchronize()

    return Peer(
        module=torch,
        put=lambda array: torch.from_numpy(array).to(kind),
        get=lambda tensor: tensor.cpu().numpy(),
        wait=wait,
        compiled=torch.compile,
    )


def _jax(kind: str) -> Peer:
    del kind
    jax = import_module("jax")
    return Peer(
        module=jax.numpy,
        put=jax.numpy.asarray,
        get=np.asarray,
        wait=lambda result: result.block_until_ready(),
        compiled=jax.jit,
    )


_OPEN: Final[Mapping[str, Callable[[str], Peer]]] = MappingProxyType(
    {"numpy": _numpy, "cupy": _cupy, "torch": _torch, "jax": _jax}
)


def names(device: str) -> tuple[str, ...]:
    """Peers worth asking on a kind of device."""
    first = "cupy" if device.startswith("cuda") else "numpy"
    return (first, "torch", "jax")


def run(name: str, device: str) -> Mapping[str, Any]:
    """Seconds of every form, results checked against NumPy first.

    Raises:
        DeviceUnavailable: the library cannot be imported.
        VerificationFailed: it computes something else.
    """
    kind = "cuda" if device.startswith("cuda") else "cpu"
    try:
        peer = _OPEN[name](kind)
    except ImportError as error:
        raise DeviceUnavailable(name, str(error)) from error
    found: dict[str, Any] = {"version": import_module(name).__version__}
    for title, (form, shapes) in FORMS.items():
        found[title] = _timed(peer, form, shapes)
    return found


def _timed(peer: Peer, form: Form, shapes: tuple[tuple[int, ...], ...]) -> Any:
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    arrays = [peer.put(array) for array in given]
    call = peer.compiled(lambda *operands: form(peer.module, *operands))
    result = call(*arrays)
    peer.wait(result)
    error = float(np.max(np.abs(peer.get(result) - form(np, *given))))
    if error > _TOLERANCE:
        raise VerificationFailed("peer", f"differs from NumPy by {error:.3g}")
    samples = []
    for _ in range(REPEATS):
        start = perf_counter()
        peer.wait(call(*arrays))
        samples.append(perf_counter() - start)
    return {"seconds": median(samples), "samples": samples, "max_abs_error": error}
