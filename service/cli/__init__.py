"""The command line: one module per group of commands."""

from service.cli.main import main

__all__ = ["main"]
