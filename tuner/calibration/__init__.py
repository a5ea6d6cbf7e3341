"""Fits a device to this machine, and judges the cost model against it."""
