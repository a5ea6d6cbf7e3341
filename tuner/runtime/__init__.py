"""Compiling, running, verifying and timing kernels on real devices."""
