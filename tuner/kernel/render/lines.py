"""Lines of text with their indentation."""

from __future__ import annotations


class Lines:
    """A text that grows line by line.

    Args:
        depth: how deep the first line is indented.
    """

    def __init__(self, depth: int) -> None:
        self.lines: list[str] = []
        self._depth = depth

    def add(self, line: str) -> None:
        """One more line."""
        self.lines.append("    " * self._depth + line)

    def open(self, head: str) -> None:
        """Begin a block; with an empty head a bare one."""
        self.add(f"{head} {{" if head else "{")
        self._depth += 1

    def close(self) -> None:
        """End the innermost block."""
        self._depth -= 1
        self.add("}")
