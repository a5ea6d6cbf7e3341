"""Runs a whole program: one arena, launches prepared once, nothing but enqueues.

Graph inputs, weights and outputs have buffers of their own; all other tensors lie in
the arena where the memory plan put them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from tuner.errors import InternalError
from tuner.ir.types import Array
from tuner.plan import Measurement
from tuner.runtime.backend import Backend, Enqueue, Memory
from tuner.runtime.bench import interpret
from tuner.runtime.feeds import align
from tuner.runtime.kernels import bind_generated, bind_library
from tuner.runtime.library import SessionOptions
from tuner.runtime.requests import Program, Step
from tuner.runtime.timing import Protocol, measure


def spread(offsets: Iterable[int], alignment: int) -> dict[int, int]:
    """Where buffers of an arena begin on a device that cuts memory in larger steps.

    They stay in order, and none comes nearer to one that begins behind it: what did
    not overlap does not.

    Args:
        offsets: by the plan, from 0.
        alignment: every new offset is a multiple of it.
    """
    found: dict[int, int] = {}
    last = place = 0
    for offset in sorted(set(offsets)):
        place = -(-(place + offset - last) // alignment) * alignment
        found[offset], last = place, offset
    return found


class Executor:
    """A program loaded onto a device."""

    def __init__(
        self,
        program: Program,
        weights: Mapping[str, Array],
        backend: Backend,
        options: SessionOptions | None = None,
        *,
        alone: bool = False,
    ) -> None:
        """Place every tensor, compute `prepare`, compile and bind every step.

        Args:
            program: what to run.
            weights: stored arrays of the program's weights; those that `prepared`
                gives already are taken as they are, and page-aligned ones are used
                where they lie.
            backend: the device.
            options: threads of library calls.
            alone: whether nothing else computes in this process while the program
                runs. The library's threads then stay awake from one run to the next
                if no kernel of ours needs the processors.

        Raises:
            CompileFailed, ResourcesExceeded, KernelFailed: a step cannot be loaded.
            InternalError: the program names a tensor that nothing makes.
        """
        self._program = program
        self._backend = backend
        self._options = options
        if alone and all(step.source is None for step in program.steps):
            self._options = replace(options or SessionOptions(), spinning=True)
        start = time.perf_counter()
        self._fixed = _load_values(program, weights)
        self.prepare_seconds = time.perf_counter() - start
        buffers = program.memory.buffers
        self._offsets = spread((b.offset for b in buffers), backend.alignment_bytes)
        ends = (self._offsets[b.offset] + b.bytes for b in buffers)
        self._arena = backend.allocate(max(ends, default=0))
        self._memories: dict[str, Memory] = {}
        self._slices: dict[tuple[int, int], Memory] = {}
        self._place()
        before = (*program.steps[-1:], *program.steps[:-1])
        self._steps = [
            self._bind(step, waits=previous.source is not None)
            for step, previous in zip(program.steps, before, strict=True)
        ]

    @property
    def peak_memory_bytes(self) -> int:
        """What the memory plan says is alive at once, at most."""
        return self._program.memory.peak_bytes

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name, in new arrays, for stored inputs by name."""
        self.load(feeds)
        self.launch()
        self._backend.synchronise()
        return {name: self._output(name) for name in self._program.outputs}

    def load(self, feeds: Mapping[str, Array]) -> None:
        """Copy the inputs of the next runs to the device."""
        for name in self._program.inputs:
            kind = self._program.types[name]
            array = feeds[name]
            if array.shape != kind.static_shape or array.dtype != kind.dtype.numpy:
                raise InternalError(
                    name, f"fed {array.dtype}{list(array.shape)}, not {kind}"
                )
            self._backend.write(self._memories[name], array)

    def launch(self) -> None:
        """Enqueue every step."""
        for step in self._steps:
            step()

    def by_step(
        self, feeds: Mapping[str, Array]
    ) -> Iterator[tuple[Step, dict[str, Array], dict[str, Array]]]:
        """Run step by step; each with what it was given and what it made.

        What a step was given is what others have made, not what lies in memory by then.
        """
        self.load(feeds)
        values = {self.home(name): array for name, array in feeds.items()}
        for step, call in zip(self._program.steps, self._steps, strict=True):
            call()
            self._backend.synchronise()
            names = (*step.graph.inputs, *step.graph.weights)
            given = {name: self._given(step, name, values) for name in names}
            made = {n: self._output(step.tensor(n)) for n in step.graph.outputs}
            values |= {self.home(step.tensor(n)): made[n] for n in made}
            yield step, given, made

    def _given(self, step: Step, name: str, values: Mapping[str, Array]) -> Array:
        tensor = step.tensor(name)
        if self._is_known(tensor):
            return self._known(step, name)
        shape = step.graph.types[name].static_shape
        return values[self.home(tensor)].reshape(shape)

    def time(self, repeats: int = 15, budget_seconds: float = 5.0) -> Measurement:
        """Time whole runs on the inputs that were loaded last."""
        protocol = Protocol(repeats=repeats, budget_seconds=budget_seconds)
        return measure(self.elapsed, protocol)

    def elapsed(self, launches: int) -> float:
        """Seconds that so many runs take."""
        return self._backend.elapsed(self.launch, launches)

    def step_seconds(self, repeats: int = 5) -> dict[str, float]:
        """Least time of each step run alone, by the step's name."""
        return {
            step.name: min(self._backend.elapsed(call, 1) for _ in range(repeats))
            for step, call in zip(self._program.steps, self._steps, strict=True)
        }

    def home(self, name: str) -> str:
        """The tensor in whose memory a tensor of the program lies."""
        aliases = self._program.memory.aliases
        while name in aliases:
            name = aliases[name]
        return name

    def _place(self) -> None:
        program = self._program
        for buffer in program.memory.buffers:
            place = (self._offsets[buffer.offset], buffer.bytes)
            if place not in self._slices:
                self._slices[place] = self._backend.slice(self._arena, *place)
            self._memories[buffer.tensor] = self._slices[place]
        for name in (*program.inputs, *map(self.home, program.outputs)):
            if name not in self._fixed and name not in self._memories:
                size_bytes = program.types[name].bytes
                self._memories[name] = self._backend.allocate(size_bytes)

    def _memory(self, name: str) -> Memory:
        """Where a tensor lives; values known at load are put there on first use."""
        home = self.home(name)
        if home not in self._memories:
            if name in self._fixed:
                home = name
            if home not in self._fixed:
                raise InternalError(name, "no step and no buffer of the plan makes it")
            self._memories[home] = self._backend.wrap(self._fixed[home])
        return self._memories[home]

    def _bind(self, step: Step, *, waits: bool) -> Enqueue:
        names = (*step.graph.inputs, *step.graph.weights)
        if step.source is not None:
            touched = [argument.tensor for argument in step.source.touched]
            memories = {name: self._memory(step.tensor(name)) for name in touched}
            exactness = self._program.exactness
            return bind_generated(
                self._backend, step.source, memories, exactness=exactness
            )
        fixed = {
            name: self._known(step, name)
            for name in names
            if self._is_known(step.tensor(name))
        }
        moving = [name for name in names if name not in fixed]
        memories = {
            name: self._memory(step.tensor(name))
            for name in (*moving, *step.graph.outputs)
        }
        return bind_library(
            self._backend, step.graph, memories, fixed, self._options, waits=waits
        )

    def _is_known(self, name: str) -> bool:
        return name in self._fixed or self.home(name) in self._fixed

    def _known(self, step: Step, name: str) -> Array:
        tensor = step.tensor(name)
        array = self._fixed.get(tensor)
        if array is None:
            array = self._fixed[self.home(tensor)]
        return array.reshape(step.graph.types[name].static_shape)

    def _output(self, name: str) -> Array:
        kind = self._program.types[name]
        if self._is_known(name):
            array = self._fixed.get(name, self._fixed.get(self.home(name)))
            return np.array(array).reshape(kind.static_shape)
        result = np.empty(kind.static_shape, kind.dtype.numpy)
        self._backend.read(self._memories[self.home(name)], result)
        return result


def prepared(program: Program, weights: Mapping[str, Array]) -> dict[str, Array]:
    """The weights, and what `prepare` computes from them.

    Handed to several executors of programs with the same `prepare`, it is computed
    and stored once.

    Raises:
        InternalError: a weight has no value.
    """
    known = {name: align(array) for name, array in weights.items()}
    graph = program.prepare
    if graph is None:
        return known
    names = (*graph.inputs, *graph.weights)
    missing = [name for name in names if name not in known]
    if missing:
        raise InternalError(missing[0], "no value was given for this weight")
    made = interpret(graph, {name: known[name] for name in names}, "native")
    return {**known, **{name: align(array) for name, array in made.items()}}


def _load_values(program: Program, weights: Mapping[str, Array]) -> dict[str, Array]:
    """Everything known at load that a step or an output needs."""
    made = () if program.prepare is None else program.prepare.outputs
    complete = all(name in weights for name in made)
    known = weights if complete else prepared(program, weights)
    needed = _needed(program)
    return {
        name: align(array)
        for name, array in {**program.constants, **known}.items()
        if name in needed
    }


def _needed(program: Program) -> set[str]:
    """Tensors that a step or an output touches, and what they are views of."""
    used = {
        step.tensor(name)
        for step in program.steps
        for name in (*step.graph.inputs, *step.graph.weights)
    }
    used.update(program.outputs)
    aliases = program.memory.aliases
    for name in tuple(used):
        home = name
        while home in aliases:
            home = aliases[home]
            used.add(home)
    return used
