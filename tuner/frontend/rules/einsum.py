"""Einsum: diagonals, sums, transposes, a matrix product for each further operand."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

from tuner.errors import InvalidModel
from tuner.frontend.builder import Builder, Decline, Extent, Ref
from tuner.frontend.call import Call, Results, Rule
from tuner.frontend.rules.movement import transpose
from tuner.frontend.rules.reductions import reduce_

_DOTS: Final = "..."


def _parse(b: Builder, call: Call) -> tuple[list[str], str]:
    """Letters of each operand and of the result, digits in place of an ellipsis."""
    text = call.text("equation", "").replace(" ", "")
    left, arrow, result = text.partition("->")
    terms, refs = left.split(","), call.given()
    if len(terms) != len(refs):
        raise InvalidModel(
            b.where,
            f"the equation has {len(terms)} operands, the node {len(refs)}",
            hint="give as many tensors as the equation has terms",
        )
    if not arrow:
        result = _implied(left)
    hidden = [
        b.rank(ref) - len(term.replace(_DOTS, ""))
        for term, ref in zip(terms, refs, strict=True)
    ]
    for term, more in zip(terms, hidden, strict=True):
        if more < 0 or (more and _DOTS not in term):
            raise InvalidModel(
                b.where,
                f"term {term!r} of the equation does not fit its operand",
                hint="a term has a letter for each axis, or an ellipsis for the others",
            )
    wide = max(hidden)
    spelled = [
        term.replace(_DOTS, _unnamed(wide)[wide - more :])
        for term, more in zip(terms, hidden, strict=True)
    ]
    return spelled, result.replace(_DOTS, _unnamed(wide))


def _unnamed(count: int) -> str:
    """Letters for the axes of an ellipsis, which are none of the alphabet."""
    return "".join(chr(ord("0") + k) for k in range(count))


def _implied(left: str) -> str:
    """The result of an equation without an arrow: letters that are there once."""
    letters = sorted(set(left) - set(",."))
    if len({letter.isupper() for letter in letters}) > 1:
        raise Decline("letters of both cases without an order")
    dots = _DOTS if _DOTS in left else ""
    return dots + "".join(c for c in letters if left.count(c) == 1)


def _plain(b: Builder, ref: Ref, term: str, broad: Collection[str]) -> tuple[Ref, str]:
    """Without axes of one element that are broadcast, and without diagonals."""
    extents = b.extents(ref)
    kept = [k for k, c in enumerate(term) if extents[k] != 1 or c not in broad]
    if len(kept) < len(term):
        ref = b.reshape(ref, [extents[k] for k in kept])
        term = "".join(term[k] for k in kept)
    while twice := next((c for c in term if term.count(c) > 1), ""):
        ref, term = _diagonal(b, ref, term, twice)
    return ref, term


def _diagonal(b: Builder, ref: Ref, term: str, letter: str) -> tuple[Ref, str]:
    """The elements of which two axes agree: every n + 1st of the two as one axis."""
    first = term.index(letter)
    second = term.index(letter, first + 1)
    others = [k for k in range(len(term)) if k not in (first, second)]
    shape = b.static(ref)
    extent = shape[first]
    if shape[second] != extent:
        raise InvalidModel(
            b.where, f"axes {letter!r} have {extent} and {shape[second]} elements"
        )
    turned = transpose(b, ref, [*others, first, second])
    lead = [shape[k] for k in others]
    flat = b.reshape(turned, [*lead, extent * extent])
    found = b.emit(
        "slice",
        flat,
        starts=(0,) * (len(lead) + 1),
        steps=(*(1 for _ in lead), extent + 1),
        sizes=(*lead, extent),
    )
    return found, "".join(term[k] for k in others) + letter


def _arrange(b: Builder, ref: Ref, term: str, wanted: str) -> Ref:
    """Sum over the letters that are not wanted, and put the rest in order."""
    gone = tuple(i for i, letter in enumerate(term) if letter not in wanted)
    kept = "".join(letter for letter in term if letter in wanted)
    small = reduce_(b, "reduce_sum", ref, gone, keep=False)
    order = [kept.index(letter) for letter in wanted if letter in kept]
    return transpose(b, small, order)


def _einsum(b: Builder, call: Call) -> Results:
    spelled, result = _parse(b, call)
    broad = _broadcast(b, call.given(), spelled)
    parts = [
        _plain(b, ref, term, broad)
        for ref, term in zip(call.given(), spelled, strict=True)
    ]
    if not set(result) <= {letter for _, term in parts for letter in term}:
        raise Decline("an axis of the result that no operand has")
    ref, term = parts[0]
    for place, (right, letters) in enumerate(parts[1:], start=2):
        later = {letter for _, other in parts[place:] for letter in other}
        wanted = _ordered(term + letters, later | set(result))
        made = result if place == len(parts) else wanted
        ref, term = _product(b, [ref, right], [term, letters], made), made
    return (_arrange(b, ref, term, result),)


def _ordered(letters: str, wanted: Collection[str]) -> str:
    """Those that are wanted, each once."""
    return "".join(letter for letter in dict.fromkeys(letters) if letter in wanted)


def _broadcast(b: Builder, refs: list[Ref], terms: list[str]) -> frozenset[str]:
    """Axes that have one element in some operand and more in another."""
    sizes: dict[str, set[Extent]] = {}
    for ref, term in zip(refs, terms, strict=True):
        for letter, extent in zip(term, b.extents(ref), strict=True):
            sizes.setdefault(letter, set()).add(extent)
    return frozenset(c for c, found in sizes.items() if len(found) > 1)


def _product(b: Builder, refs: list[Ref], terms: list[str], result: str) -> Ref:
    left, right = terms
    sizes: dict[str, Extent] = {}
    for ref, term in zip(refs, terms, strict=True):
        sizes.update(zip(term, b.extents(ref), strict=True))
    batch = "".join(c for c in left if c in right and c in result)
    inner = "".join(c for c in left if c in right and c not in result)
    rows = "".join(c for c in left if c not in right and c in result)
    columns = "".join(c for c in right if c not in left and c in result)

    def many(letters: str) -> Extent:
        return math.prod([sizes[c] for c in letters])

    lead = [sizes[c] for c in batch]
    first = _arrange(b, refs[0], left, batch + rows + inner)
    second = _arrange(b, refs[1], right, batch + inner + columns)
    product = b.emit(
        "matmul",
        b.reshape(first, [*lead, many(rows), many(inner)]),
        b.reshape(second, [*lead, many(inner), many(columns)]),
    )
    made = batch + rows + columns
    whole = b.reshape(product, [sizes[c] for c in made])
    return transpose(b, whole, [made.index(c) for c in result])


RULES: Final[Mapping[str, Rule]] = MappingProxyType({"Einsum": _einsum})
