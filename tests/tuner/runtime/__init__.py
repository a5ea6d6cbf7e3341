"""Tests of `tuner.runtime`."""
