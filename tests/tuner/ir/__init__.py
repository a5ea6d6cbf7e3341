"""Tests of tuner.ir."""
