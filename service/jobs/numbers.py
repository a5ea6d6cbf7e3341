"""Numbers of events and of rows, as requests give them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from service.store.base import MOST_NUMBER

Number = Annotated[int, Field(ge=0, le=MOST_NUMBER)]
"""The number of an event or of a row."""
