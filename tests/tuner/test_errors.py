"""What a user reads when something is refused."""

from __future__ import annotations

import pytest

from tests.tuner.search.conftest import small_model
from tuner import errors
from tuner.errors import ConstraintsUnsatisfiable, TunerError
from tuner.model import load
from tuner.pipeline import make_plan
from tuner.plan import Options, Pin

USERS = (
    errors.InvalidModel,
    errors.UnsupportedModel,
    errors.ModelTooLarge,
    errors.UnknownTarget,
    errors.InvalidOption,
    errors.ConstraintsUnsatisfiable,
)


@pytest.mark.parametrize("kind", USERS)
def test_what_a_user_can_mend_has_a_hint(kind: type[TunerError]) -> None:
    """Also where no better one is given; a given one wins."""
    usual = kind("x", "is odd")
    assert usual.hint
    assert str(usual) == f"x: is odd ({usual.hint})"
    assert kind("x", "is odd", hint="mend it").hint == "mend it"


def test_a_pin_of_one_node_says_what_to_do() -> None:
    """A pair of equal names is no pair."""
    model = load(small_model())
    name = model.graph.nodes[0].name
    pins = (Pin(fuse=True, nodes=(name, name)),)
    with pytest.raises(ConstraintsUnsatisfiable) as error:
        make_plan(model, "cpu", Options(pins=pins))
    assert error.value.hint
