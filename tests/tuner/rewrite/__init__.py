"""Tests of tuner.rewrite."""
