"""Tests of service.jobs."""
