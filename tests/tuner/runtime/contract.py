"""What every back end promises; its subclasses give the device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tuner.errors import CompileFailed
from tuner.plan import Argument, Source
from tuner.runtime.backend import Backend, ResourcesExceeded, aligned_bytes
from tuner.runtime.canary import canary, sing
from tuner.runtime.flush import Flush


class BackendContract:
    """Promises that every backend keeps; subclasses give the `backend` fixture."""

    @pytest.fixture
    def broken(self, backend: Backend) -> Source:
        """A source that no compiler accepts."""
        return Source(
            language=backend.language,
            text="this is no kernel",
            entry="broken",
            arguments=(Argument(tensor="x", is_output=True),),
            grid=(1, 1, 1),
            block=(1, 1, 1),
        )

    def test_the_canary_sings(self, backend: Backend) -> None:
        """A trivial kernel compiles, runs and gives the right numbers."""
        sing(backend)

    def test_memory_gives_back_what_was_written(self, backend: Backend) -> None:
        """Write then read is the identity for every element type and shape."""
        for dtype in ("float32", "uint16", "bool", "int64"):
            array = np.arange(30).reshape(5, 6).astype(dtype)
            memory = backend.allocate(array.nbytes)
            backend.write(memory, array)
            result = np.zeros_like(array)
            backend.read(memory, result)
            np.testing.assert_array_equal(result, array)

    def test_wrapped_arrays_hold_their_values(self, backend: Backend) -> None:
        """Wrapping an array, aligned or not, makes memory with its content."""
        aligned = aligned_bytes(64)
        aligned[:] = np.arange(64)
        for array in (aligned, aligned[1:33], np.arange(7.0)[::2]):
            result = np.zeros_like(array)
            backend.read(backend.wrap(array), result)
            np.testing.assert_array_equal(result, array)

    def test_slices_share_the_bytes_of_their_memory(self, backend: Backend) -> None:
        """What is written into a slice is read at its offset."""
        step = backend.alignment_bytes
        memory = backend.allocate(4 * step)
        backend.fill(memory, 0)
        part = backend.slice(memory, 2 * step, 8)
        backend.write(part, np.arange(8, dtype=np.uint8))
        whole = np.empty(4 * step, np.uint8)
        backend.read(memory, whole)
        assert whole[2 * step : 2 * step + 8].tolist() == list(range(8))
        assert not whole[: 2 * step].any()
        assert not whole[2 * step + 8 :].any()

    def test_empty_memory_is_legal(self, backend: Backend) -> None:
        """Tensors without elements have memory too."""
        empty = np.empty(0, np.float32)
        memory = backend.wrap(empty)
        backend.write(memory, empty)
        backend.read(memory, empty)

    def test_a_host_view_shows_the_device_bytes(self, backend: Backend) -> None:
        """If the host can see memory, it sees what the device holds."""
        memory = backend.allocate(16)
        backend.fill(memory, 7)
        backend.synchronise()
        view = backend.host(memory)
        assert view is None or view[:16].tolist() == [7] * 16

    def test_a_refused_source_is_a_compile_failure(
        self, backend: Backend, broken: Source
    ) -> None:
        """A compile error is CompileFailed, and the device still works after it."""
        with pytest.raises(CompileFailed):
            backend.bind(broken, [backend.allocate(4)])
        sing(backend)

    def test_too_many_threads_are_refused(self, backend: Backend) -> None:
        """A block beyond the device's limit never reaches the queue."""
        source = replace(canary(backend.language), block=(1 << 16, 1, 1))
        memories = [backend.allocate(4096), backend.allocate(4096)]
        with pytest.raises(ResourcesExceeded):
            backend.bind(source, memories)

    def test_a_flush_touches_all_of_its_memory(self, backend: Backend) -> None:
        """Every element, each time that it is called, and no less than asked."""
        flush = Flush(backend, 10_000)
        flush()
        flush()
        result = np.zeros(2500, np.float32)
        backend.read(flush.memory, result)
        assert (result == 2.0).all()

    def test_time_passes(self, backend: Backend) -> None:
        """More launches take longer, and both take more than nothing.

        A single launch may be interrupted for longer than a thousand take, but not each
        of several.
        """
        memories = [backend.allocate(4096), backend.allocate(4096)]
        enqueue = backend.bind(canary(backend.language), memories)
        backend.elapsed(enqueue, 10)
        few = min(backend.elapsed(enqueue, 1) for _ in range(5))
        many = backend.elapsed(enqueue, 1000)
        assert 0 < few < many

    def test_it_says_what_it_is(self, backend: Backend) -> None:
        """Name and toolchain identify a measurement."""
        assert backend.name
        assert backend.toolchain
