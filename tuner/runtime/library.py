"""Library kernels: small graphs run by ONNX Runtime on arrays that stay in place.

In a process of our own (`share_threads`) all sessions share one pool of threads. A pool
a session leaves dozens of threads to be woken one after the other: BERT-base took 116
ms with them and 95 ms with one pool, measured in turn. Calls that wake threads of their
own, and put them to sleep behind each, take longer still (a small Llama 35 ms, not 21).

Elsewhere sessions have threads of their own, which do not spin between calls, or they
and those of the generated kernels would stop each other; only where nothing but the
library computes they may. ONNX Runtime (1.32) is asked to stop those of a shared pool
behind a call, too, but does not: measured, they compute all through pauses of 2 ms. So
generated kernels share the processors with them, which is what
`Device.library_wake_seconds` is calibrated for.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from onnx import ModelProto, TensorProto, helper

from tuner.errors import DeviceUnavailable, KernelFailed
from tuner.ir.graph import Graph, Node
from tuner.ir.types import Array, DType, TensorType
from tuner.runtime.onnx_rows import ELEMENT
from tuner.runtime.onnx_writer import external, is_external, write_model

_CURE: Final = "pip install onnxruntime"
_ERROR: Final = 3
_CODES: Final = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")


def _runtime() -> Any:
    try:
        import onnxruntime  # type: ignore[import-untyped]  # noqa: PLC0415
    except ImportError as error:
        raise DeviceUnavailable("library", str(error), hint=_CURE) from error
    return onnxruntime


def is_available() -> bool:
    """Whether ONNX Runtime can be imported."""
    try:
        _runtime()
    except DeviceUnavailable:
        return False
    return True


def toolchain() -> str:
    """Name and version of the library."""
    return f"onnxruntime {_runtime().__version__}"


def usable_threads() -> int:
    """Number of processors that this process may run on."""
    return len(os.sched_getaffinity(0))


_EXACT: Final = ("session.qdq_matmulnbits_accuracy_level", "1")
"""Products with weights of few bits in 32-bit floats, where else bytes would do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """How ONNX Runtime runs a model.

    Attributes:
        threads: threads of one operator.
        spinning: whether idle threads spin even between calls; only where nothing else
            computes.
    """

    threads: int = field(default_factory=usable_threads)
    spinning: bool = False


@dataclass(slots=True)
class Session:
    """A loaded model. Keeps the arrays alive whose addresses it was given."""

    session: Any
    kept: tuple[Any, ...]

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run once on arrays of NumPy types (no bf16) and return new arrays."""
        names = [output.name for output in self.session.get_outputs()]
        wanted = {item.name for item in self.session.get_inputs()}
        given = {name: array for name, array in feeds.items() if name in wanted}
        results: list[Array] = self.session.run(names, given)
        return dict(zip(names, results, strict=True))

    def bind(
        self,
        arrays: Mapping[str, Array],
        types: Mapping[str, TensorType],
    ) -> Launch:
        """Fix the addresses of all inputs and outputs.

        Args:
            arrays: stored arrays (bf16 as uint16) by tensor name, contiguous; they
                are read and written in place at every run.
            types: the types of these tensors.
        """
        binding = self.session.io_binding()
        for item in self.session.get_inputs():
            binding.bind_input(*_place(item.name, arrays, types))
        for item in self.session.get_outputs():
            binding.bind_output(*_place(item.name, arrays, types))
        raw, options = self.session._sess, _runtime().RunOptions()  # noqa: SLF001
        return Launch(
            call=raw.run_with_iobinding,
            arguments=(binding._iobinding, options),  # noqa: SLF001
            kept=(arrays, binding),
        )


@dataclass(frozen=True, slots=True)
class Launch:
    """A library call with its addresses bound; returns when it is done."""

    call: Any
    arguments: tuple[Any, ...]
    kept: tuple[Any, ...]

    def __call__(self) -> None:
        """Run.

        Raises:
            KernelFailed: the library reported an error.
        """
        with _explained():
            self.call(*self.arguments)


def _place(
    name: str, arrays: Mapping[str, Array], types: Mapping[str, TensorType]
) -> tuple[str, str, int, Any, tuple[int, ...], int]:
    array, kind = arrays[name], types[name]
    element = ELEMENT[kind.dtype] if kind.dtype is DType.BF16 else kind.dtype.numpy
    return name, "cpu", 0, element, kind.static_shape, array.ctypes.data


def open_graph(
    graph: Graph,
    fixed: Mapping[str, Array] | None = None,
    options: SessionOptions | None = None,
) -> Session:
    """Load a small graph.

    Args:
        graph: a graph with static shapes.
        fixed: stored arrays of inputs whose values never change (weights); the
            library may pack them, and large ones are used where they lie.
        options: threads.

    Raises:
        DeviceUnavailable: ONNX Runtime is not installed.
        KernelFailed: ONNX Runtime cannot run the graph.
    """
    fixed = dict(fixed or {})
    model = write_model(graph, fixed)
    by_address = {
        name: (array, graph.types[name])
        for name, array in {**graph.constants, **fixed}.items()
        if name in graph.types and is_external(graph.types[name])
    }
    return _open(model.SerializeToString(), by_address, options or SessionOptions())


def _open(
    model: bytes,
    by_address: Mapping[str, tuple[Array, TensorType]],
    options: SessionOptions,
    *,
    apart: bool = False,
) -> Session:
    runtime = _runtime()
    settings = runtime.SessionOptions()
    settings.log_severity_level = _ERROR
    settings.add_session_config_entry(*_EXACT)
    _give_threads(runtime, settings, options, apart=apart)
    values = {
        name: _ort_value(runtime, array, kind)
        for name, (array, kind) in by_address.items()
    }
    if values:
        settings.add_external_initializers(list(values), list(values.values()))
    with _explained():
        session = runtime.InferenceSession(
            model, settings, providers=["CPUExecutionProvider"]
        )
    return Session(session=session, kept=(by_address, values))


def _give_threads(
    runtime: Any, settings: Any, options: SessionOptions, *, apart: bool
) -> None:
    """The shared pool where there is one, else threads of the session's own."""
    if not _shared_pool.serves(runtime, options, apart=apart):
        settings.intra_op_num_threads = options.threads
        spinning = "1" if options.spinning else "0"
        settings.add_session_config_entry("session.intra_op.allow_spinning", spinning)
        return
    settings.use_per_session_threads = False
    if not options.spinning:
        settings.add_session_config_entry("session.force_spinning_stop", "1")


class _SharedPool:
    """The pool of this process, made for the first session that may share threads.

    Sessions whose threads stay awake share it too, or each would have a pool that
    keeps all processors busy. ONNX Runtime refuses sessions with threads of their own
    from then on.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.is_allowed = False
        self._is_made = False

    def serves(self, runtime: Any, options: SessionOptions, *, apart: bool) -> bool:
        """Whether a session takes its threads from the pool.

        Args:
            runtime: the library.
            options: how many threads the pool has, if it is made now.
            apart: whether the session has threads of its own while no pool is made.
        """
        with self._lock:
            if self.is_allowed and not self._is_made and not apart:
                runtime.set_global_thread_pool_sizes(options.threads, 1)
                self._is_made = True
            return self._is_made


_shared_pool: Final = _SharedPool()


def share_threads() -> None:
    """Let all sessions of this process share one pool of threads.

    For processes that run nobody else's sessions: the pool cannot be taken back.
    """
    _shared_pool.is_allowed = True


@contextmanager
def _explained() -> Iterator[None]:
    """Make what ONNX Runtime raises a failure of the kernel, without its codes."""
    try:
        yield
    except _failures(_runtime()) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise KernelFailed("library", _CODES.sub("", lines[0])) from error


@functools.cache
def _failures(runtime: Any) -> tuple[type[Exception], ...]:
    """What ONNX Runtime raises when it refuses or fails: its own, or RuntimeError.

    Its own are no kind of RuntimeError, and have no base of their own.
    """
    state = runtime.capi.onnxruntime_pybind11_state
    kinds = (kind for kind in vars(state).values() if isinstance(kind, type))
    own = (kind for kind in kinds if issubclass(kind, Exception))
    return (RuntimeError, ValueError, *own)


def _ort_value(runtime: Any, array: Array, kind: TensorType) -> Any:
    stored = np.asarray(array, order="C").reshape(kind.static_shape)
    if kind.dtype is DType.BF16:
        return runtime.OrtValue.ortvalue_from_numpy_with_onnx_type(
            stored, ELEMENT[DType.BF16]
        )
    return runtime.OrtValue.ortvalue_from_numpy(stored)


def run_opaque(node: Node, graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    """Run one node of a graph, as `tuner.ir.interpreter.evaluate` asks.

    Args:
        node: any node of the graph.
        graph: gives the types.
        arrays: stored inputs, in the node's order.
    """
    names = tuple(dict.fromkeys(node.inputs))
    given = dict(zip(node.inputs, arrays, strict=True))
    single = Graph(
        nodes=(node,),
        inputs=names,
        outputs=node.outputs,
        types={name: graph.types[name] for name in (*names, *node.outputs)},
    )
    results = {
        name: np.empty(graph.types[name].static_shape, graph.types[name].dtype.numpy)
        for name in node.outputs
    }
    inputs = {name: np.asarray(array, order="C") for name, array in given.items()}
    open_graph(single).bind({**inputs, **results}, single.types)()
    return [results[name] for name in node.outputs]


class ReferenceModel:
    """The user's own model, whole, with all of ONNX Runtime's optimisations."""

    def __init__(
        self,
        model: bytes,
        weights: Mapping[str, Array] | None = None,
        options: SessionOptions | None = None,
    ) -> None:
        """Load a model.

        Args:
            model: a serialised ONNX model with its dimensions bound.
            weights: values of graph inputs that are weights in truth (light models);
                they become initializers, so that the library may pack them.
            options: threads; spinning only where the model is timed alone. It then has
                threads of its own, as its user would give it.

        Raises:
            KernelFailed: ONNX Runtime cannot run the model.
        """
        proto = ModelProto()
        proto.ParseFromString(model)
        by_address = _promote(proto, weights or {})
        given = options or SessionOptions()
        self._session = _open(
            proto.SerializeToString(), by_address, given, apart=given.spinning
        )

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name, on stored arrays (bf16 as uint16)."""
        session = self._session.session
        types = {item.name: item.type for item in session.get_inputs()}
        runtime = _runtime()
        values = {
            name: _as_ort_value(runtime, array, types[name])
            for name, array in feeds.items()
            if name in types
        }
        names = [item.name for item in session.get_outputs()]
        with _explained():
            results = session.run_with_ort_values(names, values)
        return {
            name: _as_array(value) for name, value in zip(names, results, strict=True)
        }

    def launch(self, feeds: Mapping[str, Array]) -> Launch:
        """A call with the inputs bound, outputs in memory of the library's own."""
        session = self._session.session
        binding = session.io_binding()
        runtime = _runtime()
        types = {item.name: item.type for item in session.get_inputs()}
        kept = {
            name: _as_ort_value(runtime, array, types[name])
            for name, array in feeds.items()
            if name in types
        }
        for name, value in kept.items():
            binding.bind_ortvalue_input(name, value)
        for item in session.get_outputs():
            binding.bind_output(item.name, "cpu")
        return Launch(
            call=session.run_with_iobinding, arguments=(binding,), kept=(kept,)
        )


def _as_ort_value(runtime: Any, array: Array, kind: str) -> Any:
    stored = np.asarray(array, order="C")
    if kind == "tensor(bfloat16)":
        return runtime.OrtValue.ortvalue_from_numpy_with_onnx_type(
            stored, TensorProto.BFLOAT16
        )
    return runtime.OrtValue.ortvalue_from_numpy(stored)


def _as_array(value: Any) -> Array:
    """Copy of a result; bf16, which NumPy does not know, comes as bit patterns."""
    if value.data_type() != "tensor(bfloat16)":
        array: Array = value.numpy()
        return array
    content = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return np.frombuffer(content, np.uint16).reshape(value.shape())


def _promote(
    proto: ModelProto, weights: Mapping[str, Array]
) -> dict[str, tuple[Array, TensorType]]:
    """Turn the inputs that are weights into initializers given by address."""
    present = {item.name for item in proto.graph.input}
    found = {}
    for name, array in weights.items():
        if name not in present:
            continue
        kind = _type_of(proto, name)
        if is_external(kind):
            proto.graph.initializer.append(external(name, kind))
            found[name] = (array, kind)
        else:
            proto.graph.initializer.append(
                helper.make_tensor(
                    name,
                    ELEMENT[kind.dtype],
                    list(kind.static_shape),
                    np.asarray(array, order="C").tobytes(),
                    raw=True,
                )
            )
    kept = [item for item in proto.graph.input if item.name not in weights]
    del proto.graph.input[:]
    proto.graph.input.extend(kept)
    return found


def _type_of(proto: ModelProto, name: str) -> TensorType:
    item = next(item for item in proto.graph.input if item.name == name)
    tensor = item.type.tensor_type
    dtype = next(d for d, e in ELEMENT.items() if e == tensor.elem_type)
    shape = tuple(dim.dim_value for dim in tensor.shape.dim)
    return TensorType(dtype=dtype, shape=shape)
