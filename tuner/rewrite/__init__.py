"""Algebraic simplification: named pure rules, and the driver that applies them."""

from tuner.rewrite.driver import RULES, simplify
from tuner.rewrite.hoist import Rewritten

__all__ = ["RULES", "Rewritten", "simplify"]
