"""Analytic roofline model: counted work and device limits in, seconds out.

The package never sees a graph. It depends on the standard library and NumPy.
"""
