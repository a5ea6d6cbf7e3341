"""Tests of service.api."""
