"""Arithmetic on symbolic extents."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.frontend.sizes import Size, Sizes, Undecided

SYMBOLS = ("a", "b", "c")


@st.composite
def _sizes(draw: st.DrawFn) -> Size | int:
    """A sum of a few products."""
    names = Sizes()
    total: Size | int = draw(st.integers(-4, 4))
    for _ in range(draw(st.integers(0, 3))):
        term: Size | int = draw(st.integers(-3, 3))
        for symbol in draw(st.lists(st.sampled_from(SYMBOLS), max_size=3)):
            term = term * names.of(symbol)
        total = total + term
    return total


def _value(size: Size | int, at: dict[str, int]) -> int:
    if isinstance(size, int):
        return size
    total = 0
    for monomial, count in size.terms.items():
        for symbol in monomial:
            count *= at[symbol]  # noqa: PLW2901
        total += count
    return total


@given(_sizes(), _sizes(), st.lists(st.integers(1, 9), min_size=3, max_size=3))
def test_arithmetic_is_that_of_the_numbers(
    left: Size | int, right: Size | int, numbers: list[int]
) -> None:
    """Sums, differences and products hold for every value of the symbols."""
    at = dict(zip(SYMBOLS, numbers, strict=True))
    x, y = _value(left, at), _value(right, at)
    assert _value(left + right, at) == x + y
    assert _value(left - right, at) == x - y
    assert _value(left * right, at) == x * y


@given(_sizes(), _sizes(), st.lists(st.integers(1, 9), min_size=3, max_size=3))
def test_what_is_decided_is_true(
    left: Size | int, right: Size | int, numbers: list[int]
) -> None:
    """A comparison has an answer only if it is the same for all sizes."""
    at = dict(zip(SYMBOLS, numbers, strict=True))
    x, y = _value(left, at), _value(right, at)
    for ours, plain in ((lambda: left < right, x < y), (lambda: left == right, x == y)):
        try:
            answer = ours()
        except Undecided:
            continue
        assert answer == plain


def test_division_is_exact_or_undecided() -> None:
    """Only what divides for every size is divided."""
    names = Sizes()
    a, b = names.of("a"), names.of("b")
    assert str(a * b * 6 / (b * 2)) == "3*a"
    assert a * 4 / (a * 2) == 2
    for over, under in ((a, b), (a * 3, 2), (a, a + b)):
        with pytest.raises(Undecided):
            over / under


def test_names_come_back_as_the_polynomials_that_they_stand_for() -> None:
    """A dimension called `2*a` is twice the dimension `a`."""
    names = Sizes()
    dim = names.dim(names.of("a") * 2)
    assert dim == "2*a"
    assert names.of(dim) == names.of("a") + names.of("a")
