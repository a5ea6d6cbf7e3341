"""Tests of service.store."""
