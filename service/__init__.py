"""The service: database, HTTP, jobs, command line and dashboard."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("fuseplan")
except PackageNotFoundError:  # a source tree that is not installed
    __version__ = "0.0.0"
