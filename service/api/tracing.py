"""Spans of requests for a collector (OpenTelemetry); off unless an address is set.

The packages come with the extra `telemetry`. A span carries the route, not the path: no
key, name or query of a client leaves the service with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service import __version__
from service.errors import TracingUnavailable

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

_SERVER_ERROR: Final = 500


class TracingMiddleware:
    """Opens a span around each request; one that a caller began goes on.

    Args:
        app: what answers.
        provider: where spans go.
    """

    def __init__(self, app: ASGIApp, provider: TracerProvider) -> None:
        self._app = app
        self._tracer = provider.get_tracer("fuseplan", __version__)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        from opentelemetry import propagate, trace  # noqa: PLC0415 - optional

        carrier = {
            n.decode("latin-1"): v.decode("latin-1") for n, v in scope["headers"]
        }
        with self._tracer.start_as_current_span(
            scope["method"],
            context=propagate.extract(carrier),
            kind=trace.SpanKind.SERVER,
        ) as span:

            async def told(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                    if message["status"] >= _SERVER_ERROR:
                        span.set_status(trace.StatusCode.ERROR)
                await send(message)

            await self._app(scope, receive, told)
            route = route_of(scope)
            span.update_name(f"{scope['method']} {route}")
            span.set_attribute("http.request.method", scope["method"])
            span.set_attribute("http.route", route)
            span.set_attribute(
                "fuseplan.request_id", str(scope.get("fuseplan_request_id", ""))
            )


def route_of(scope: Scope) -> str:
    """The route that answered a request, without what the client put in it."""
    found = scope.get("fuseplan_route") or getattr(scope.get("route"), "path", None)
    return str(found or "unmatched")


def open_provider(
    url: str, exporter: Callable[[str], SpanExporter] | None = None
) -> TracerProvider:
    """What sends spans in batches to a collector.

    Args:
        url: OTLP over HTTP, with its path.
        exporter: makes what sends them there; by default the one of OpenTelemetry.

    Raises:
        TracingUnavailable: the extra `telemetry` is not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        raise TracingUnavailable(
            "FUSEPLAN_OTLP_URL",
            "sending spans needs OpenTelemetry",
            hint="install fuseplan[telemetry]",
        ) from error
    made = OTLPSpanExporter(endpoint=url) if exporter is None else exporter(url)
    resource = Resource.create({"service.name": "fuseplan"})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(made))
    return provider
