"""Disjoint sets of small numbers, joined step by step."""

from __future__ import annotations


class Groups:
    """Numbers below a count, each in one group; groups can only grow."""

    def __init__(self, count: int) -> None:
        """Every number in a group of its own."""
        self._parent = list(range(count))

    def top(self, member: int) -> int:
        """The number that stands for a member's group."""
        parent = self._parent
        while parent[member] != member:
            parent[member] = parent[parent[member]]
            member = parent[member]
        return member

    def join(self, first: int, second: int) -> None:
        """Make one group of two."""
        self._parent[self.top(first)] = self.top(second)

    def masks(self) -> list[int]:
        """The groups as bit masks, by lowest member."""
        found: dict[int, int] = {}
        for member in range(len(self._parent)):
            lead = self.top(member)
            found[lead] = found.get(lead, 0) | 1 << member
        return list(found.values())
