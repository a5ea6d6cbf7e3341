"""A small client of the service: submit, watch, look up.

Looking up never breaks a build: all lookups of one client share one time budget, and a
service that is slow, gone or broken gives a `Miss` that says so.
"""

from service.client.answers import parse_events
from service.client.asynchronous import AsyncClient
from service.client.blocking import Client
from service.client.budget import LOOKUP_BUDGET_SECONDS, Counts
from service.client.values import (
    ClientError,
    Event,
    Evidence,
    Found,
    Job,
    Miss,
    Refused,
    ServiceUnavailable,
    StoredPlan,
    Submission,
    Submit,
)

__all__ = [
    "LOOKUP_BUDGET_SECONDS",
    "AsyncClient",
    "Client",
    "ClientError",
    "Counts",
    "Event",
    "Evidence",
    "Found",
    "Job",
    "Miss",
    "Refused",
    "ServiceUnavailable",
    "StoredPlan",
    "Submission",
    "Submit",
    "parse_events",
]
