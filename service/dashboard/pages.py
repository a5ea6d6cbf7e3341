"""Templates, and the headers that every page goes out with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from service.dashboard import formats
from service.dashboard.jobs import moment
from service.dashboard.source import ApiProblem
from service.dashboard.strips import strip

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from datetime import datetime

    from fastapi import Request, Response

    from service.dashboard.assets import Assets

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'; object-src 'none'",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
"""No inline script or style, nothing from elsewhere, never inside another page."""


class Pages:
    """Renders templates; everything that a client sent is escaped."""

    def __init__(self, assets: Assets) -> None:
        self._environment = Environment(
            loader=PackageLoader("service.dashboard"),
            autoescape=select_autoescape(default=True),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.globals["asset"] = assets.address
        self._environment.filters.update(
            duration=formats.duration,
            clock=formats.clock,
            size=formats.size,
            percent=formats.percent,
            ratio=formats.ratio,
            count=formats.count,
            many=formats.many,
            moment=_moment,
            iso=_iso,
            strip=strip,
        )

    def page(self, template: str, *, status: int = 200, **values: object) -> Response:
        """A whole page, or a part of one that replaces an older copy."""
        text = self._environment.get_template(template).render(values)
        return HTMLResponse(text, status_code=status, headers=dict(HEADERS))

    def problem(self, problem: ApiProblem) -> Response:
        """The page of an error: what is wrong, and what to do next."""
        return self.page(
            "problem.html",
            status=problem.status,
            section="",
            problem=problem.document,
            status_code=problem.status,
        )


def _moment(value: datetime | None) -> str:
    return value.strftime("%Y-%m-%d %H:%M:%S") if value else formats.NO_FIGURE


def _iso(text: str | None) -> str:
    return _moment(moment(text))


def explaining(pages: Pages) -> type[APIRoute]:
    """A kind of route that turns a problem of the API into its page."""

    class Explaining(APIRoute):
        def get_route_handler(
            self,
        ) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def handler(request: Request) -> Response:
                try:
                    return await handle(request)
                except ApiProblem as problem:
                    return pages.problem(problem)

            return handler

    return Explaining
