"""Text that writes the results of a group to memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.kernel.streams import streams

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.kernel.nest import Store
    from tuner.kernel.render.scope import Scope
    from tuner.kernel.render.values import Values


class Stores:
    """Writes stores.

    Args:
        scope: the group.
        values: what is stored.
    """

    def __init__(self, scope: Scope, values: Values) -> None:
        self._scope = scope
        self._values = values

    def write(self, stores: Sequence[Store], condition: str) -> None:
        """Store results where a condition holds; an empty one always does."""
        if not stores:
            return
        lines = self._scope.lines
        if condition:
            lines.open(f"if ({condition})")
        for store in stores:
            self._store(store)
        if condition:
            lines.close()

    def _store(self, store: Store) -> None:
        scope, values = self._scope, self._values
        tensor = scope.nest.tensors[store.tensor]
        storage = scope.dialect.storage[tensor.dtype]
        name = scope.names[store.tensor]
        copies = self._copies(store)
        stored = [self._stored(store, copy) for copy in copies]
        if len(stored) > 1 and values.is_wide(store.tensor, store.index, store.guards):
            text = scope.dialect.vector_store.format(
                n=len(stored),
                v=storage.vectors[len(stored)],
                p=name,
                i=values.index(store.index, 0),
                x=", ".join(stored),
            )
            scope.lines.add(f"{text};")
            return
        for copy, value in zip(copies, stored, strict=True):
            place = values.index(store.index, copy)
            text = storage.pointer_store.format(p=name, i=place, x=value)
            stream = f"stream_{tensor.dtype.value}"
            if stream in scope.dialect.helpers and self._streams(store):
                text = f"{stream}({name} + {place}, {value})"
            test = f"if ({values.test(store.guards, copy)}) " if store.guards else ""
            scope.lines.add(f"{test}{text};")

    def _streams(self, store: Store) -> bool:
        scope = self._scope
        return streams(scope.nest, scope.group, scope.mapping, store)

    def _copies(self, store: Store) -> range:
        inner = set(self._scope.group.inner)
        is_many = any(atom in inner for atom, _ in store.index.terms)
        return range(self._scope.mapping.vector if is_many else 1)

    def _stored(self, store: Store, copy: int) -> str:
        scope = self._scope
        storage = scope.dialect.storage[scope.nest.tensors[store.tensor].dtype]
        return storage.store.format(x=self._values.operand(store.value, copy))
