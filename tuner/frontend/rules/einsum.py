"""Einsum of one or two operands: sums, transposes and one matrix product."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tuner.frontend.builder import Builder, Decline, Extent, Ref
from tuner.frontend.call import Call, Results, Rule
from tuner.frontend.rules.movement import transpose
from tuner.frontend.rules.reductions import reduce_


def _parse(b: Builder, call: Call) -> tuple[list[str], str]:
    """Letters of each operand and of the result."""
    text = call.text("equation", "").replace(" ", "")
    if "." in text:
        raise Decline("an ellipsis")
    left, arrow, result = text.partition("->")
    terms = left.split(",")
    if not arrow:
        letters = sorted(set(left) - {","})
        result = "".join(c for c in letters if left.count(c) == 1)
    fits = [
        len(term) == b.rank(ref) and len(set(term)) == len(term)
        for term, ref in zip(terms, call.given(), strict=True)
    ]
    if not all(fits):
        raise Decline("a diagonal")
    return terms, result


def _arrange(b: Builder, ref: Ref, term: str, wanted: str) -> Ref:
    """Sum over the letters that are not wanted, and put the rest in order."""
    gone = tuple(i for i, letter in enumerate(term) if letter not in wanted)
    kept = "".join(letter for letter in term if letter in wanted)
    small = reduce_(b, "reduce_sum", ref, gone, keep=False)
    order = [kept.index(letter) for letter in wanted if letter in kept]
    return transpose(b, small, order)


def _einsum(b: Builder, call: Call) -> Results:
    terms, result = _parse(b, call)
    refs = call.given()
    if len(refs) == 1:
        return (_arrange(b, refs[0], terms[0], result),)
    if len(refs) > len(("left", "right")):
        raise Decline("more than two operands")
    return (_product(b, refs, terms, result),)


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
