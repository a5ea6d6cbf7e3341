"""Tests of the same-named package."""
