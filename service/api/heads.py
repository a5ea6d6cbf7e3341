"""Headers of a request, for what happens around every one of them.

Each look through a list of pairs costs about as much as a lookup that is answered from
memory may take in all, so that the list is gone through once.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.types import Scope


def header(scope: Scope, name: bytes) -> str:
    """A header's value; of several the first, of none the empty text.

    Args:
        scope: of the request.
        name: in small letters, as the server gives it.
    """
    found: Mapping[bytes, bytes] | None = scope.get("fuseplan_headers")
    if found is None:
        found = scope["fuseplan_headers"] = dict(reversed(scope["headers"]))
    value = found.get(name)
    return "" if value is None else value.decode("latin-1")
