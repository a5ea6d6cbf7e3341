"""Arithmetic on symbolic extents: polynomials with integer coefficients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.ir.types import Dim

Monomial = tuple[str, ...]


class Undecided(ArithmeticError):
    """The question has no answer for every size of the symbols."""


@dataclass(frozen=True, slots=True, eq=False)
class Size:
    """A polynomial in the symbolic dimensions, each of which is at least 1.

    Attributes:
        terms: coefficient of each monomial (sorted symbols; none for the constant).
    """

    terms: Mapping[Monomial, int]

    def __str__(self) -> str:
        parts = [
            "*".join((*((str(c),) if c != 1 or not m else ()), *m))
            for m, c in sorted(self.terms.items(), reverse=True)
        ]
        return " + ".join(parts)

    def __hash__(self) -> int:
        return hash(tuple(sorted(self.terms.items())))

    def __add__(self, other: object) -> Size | int:
        terms = dict(self.terms)
        for monomial, count in _terms(other).items():
            terms[monomial] = terms.get(monomial, 0) + count
        return _tidy(terms)

    def __neg__(self) -> Size | int:
        return _tidy({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: object) -> Size | int:
        terms = dict(self.terms)
        for monomial, count in _terms(other).items():
            terms[monomial] = terms.get(monomial, 0) - count
        return _tidy(terms)

    def __rsub__(self, other: object) -> Size | int:
        return _tidy(_terms(other)) + (-self)

    def __mul__(self, other: object) -> Size | int:
        terms: dict[Monomial, int] = {}
        for left, a in self.terms.items():
            for right, b in _terms(other).items():
                key = tuple(sorted((*left, *right)))
                terms[key] = terms.get(key, 0) + a * b
        return _tidy(terms)

    def __truediv__(self, other: object) -> Size | int:
        divisor = _terms(other)
        if len(divisor) != 1:
            raise Undecided(f"({self}) / ({other})")
        ((symbols, count),) = divisor.items()
        terms: dict[Monomial, int] = {}
        for monomial, own in self.terms.items():
            rest = list(monomial)
            for symbol in symbols:
                if symbol not in rest:
                    raise Undecided(f"({self}) / ({other})")
                rest.remove(symbol)
            if own % count:
                raise Undecided(f"({self}) / ({other})")
            terms[tuple(rest)] = own // count
        return _tidy(terms)

    __floordiv__ = __truediv__
    __radd__ = __add__
    __rmul__ = __mul__

    def __rtruediv__(self, other: object) -> Size | int:
        raise Undecided(f"{other} / ({self})")

    __rfloordiv__ = __rtruediv__

    def _compare(self, other: object) -> int:
        """Sign of self - other, where it is the same for all sizes."""
        difference = self - other
        if isinstance(difference, int):
            return (difference > 0) - (difference < 0)
        least = sum(difference.terms.values())  # every symbol at its least, 1
        symbolic = [c for m, c in difference.terms.items() if m]
        if min(symbolic) > 0 and least > 0:
            return 1
        if max(symbolic) < 0 and least < 0:
            return -1
        raise Undecided(f"({self}) against ({other})")

    def __eq__(self, other: object) -> bool:
        return self._compare(other) == 0

    def __ne__(self, other: object) -> bool:
        return self._compare(other) != 0

    def __lt__(self, other: object) -> bool:
        return self._compare(other) < 0

    def __le__(self, other: object) -> bool:
        return self._compare(other) <= 0

    def __gt__(self, other: object) -> bool:
        return self._compare(other) > 0

    def __ge__(self, other: object) -> bool:
        return self._compare(other) >= 0


def _terms(value: object) -> Mapping[Monomial, int]:
    if isinstance(value, Size):
        return value.terms
    try:
        return {(): int(value)}  # type: ignore[call-overload]
    except (TypeError, ValueError) as error:
        raise Undecided(str(value)) from error


def _tidy(terms: Mapping[Monomial, int]) -> Size | int:
    kept = {m: c for m, c in terms.items() if c}
    if not any(kept):
        return kept.get((), 0)
    return Size(kept)


class Sizes:
    """The polynomials behind the names of dimensions of one model."""

    def __init__(self) -> None:
        """Start with no names."""
        self._known: dict[str, Size] = {}

    def of(self, dim: Dim) -> Size | int:
        """The polynomial of a dimension."""
        if isinstance(dim, int):
            return dim
        return self._known.setdefault(dim, Size({(dim,): 1}))

    def dim(self, size: Size | int) -> Dim:
        """The dimension of a polynomial: a number, or a name."""
        if not isinstance(size, Size):
            return int(size)
        name = str(size)
        self._known.setdefault(name, size)
        return name
