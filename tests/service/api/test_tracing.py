"""Tests of spans: sent to a collector, and with nothing in them that a client wrote."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry import trace as tracing
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (
    InMemorySpanExporter,
)

from tests.service.api.conftest import Start


class Collector(HTTPServer):
    """Takes spans over HTTP, as a collector does."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        super().__init__(("127.0.0.1", 0), Taking)


class Taking(BaseHTTPRequestHandler):
    """One request with spans."""

    server: Collector

    def do_POST(self) -> None:
        """Keep the spans of the request."""
        length = int(self.headers["Content-Length"])
        sent = ExportTraceServiceRequest.FromString(self.rfile.read(length))
        for resource in sent.resource_spans:
            for scope in resource.scope_spans:
                self.server.spans += scope.spans
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector for as long as the block lasts."""
    with Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        yield collector
        collector.shutdown()
        thread.join()


def test_requests_are_spans_of_the_callers_trace(start: Start) -> None:
    """Each has route, method, status and request id, and no path or query."""
    trace = "0af7651916cd43dd8448eb211c80319c"
    with collecting() as collector:
        port = collector.server_address[1]
        client = start(otlp_url=f"http://127.0.0.1:{port}/v1/traces")
        parent = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
        missing = client.get(f"/v1/plans/{'0' * 64}?match=exact", headers=parent)
        client.get("/livez")
        client.__exit__(None, None, None)
    spans = {span.name: span for span in collector.spans}
    assert set(spans) == {"GET /v1/plans/{key}", "GET /livez"}
    span = spans["GET /v1/plans/{key}"]
    assert span.trace_id.hex() == trace
    told = {one.key: one.value for one in span.attributes}
    assert told["http.response.status_code"].int_value == 404
    assert told["fuseplan.request_id"].string_value == missing.headers["X-Request-Id"]
    assert "0" * 64 not in str(span)


def test_nothing_else_makes_spans(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A provider that somebody set for the whole process is told of no request.

    The framework would give it paths, messages of errors and stacks.
    """
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr(tracing, "_TRACER_PROVIDER", provider)
    assert tracing.get_tracer_provider() is provider
    client = start()
    assert client.get(f"/v1/plans/{'0' * 64}").status_code == 404
    assert client.get("/v1/plans/short").status_code == 422
    assert kept.get_finished_spans() == ()
