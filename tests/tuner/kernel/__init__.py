"""Tests of the kernel generator."""
