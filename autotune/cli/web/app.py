"""The server of ``autotune serve``: paths, answers, and streams of what changes. It only reads the database, which it
opens anew for each request: so it outlives jobs, and databases that are moved or locked."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from autotune.cli import jobs as jobs_command
from autotune.cli import report as report_command
from autotune.cli.job_lines import chosen
from autotune.cli.web import jobs, metrics, models, workloads
from autotune.cli.web.frame import HEADERS, SCRIPT, Page, key_of
from autotune.cli.web.listing import Wanted
from autotune.database import Database
from autotune.database.address import DatabaseAddress
from autotune.database.summary import NO_RUNS
from autotune.errors import AutotuneError, DatabaseError
from autotune.foreign import printable
from autotune.tuning.jobs.owner import HEARTBEAT_S
from autotune.tuning.report.html import element, joined

T = TypeVar("T")
LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")
_LOCKED_S = 5.0
"""A page waits so long for a database that another process keeps locked."""
_PAGE = re.compile("[1-9][0-9]{,5}")
_IDLE = 10
"""A stream reads the database for at most one part in so many of its time."""


def _wanted(request: Request) -> Wanted:
    """Return the part of a list that a request asks for."""
    given = request.query_params
    number = given.get("page", "")
    return Wanted(request.url.path, given.get("find", ""), int(number) if _PAGE.fullmatch(number) else 1)


def _workloads(store: Database, request: Request) -> Page:
    """Return the list of workloads; the server keeps what it has counted."""
    state = request.app.state
    state.counts = store.run_counts(getattr(state, "counts", NO_RUNS))
    return workloads.workloads_page(store, _wanted(request), state.counts)


PAGES: Mapping[str, Callable[[Database, Request], Page]] = {
    "/": lambda store, request: jobs.jobs_page(store, _wanted(request)),
    "/jobs/{job}": lambda store, request: jobs.job_page(store, request.path_params["job"]),
    "/workloads": _workloads,
    "/workloads/{key}": lambda store, request: workloads.workload_page(store, request.path_params["key"]),
    "/models": lambda store, _: models.models_page(store),
}
"""Those for people."""
DOCUMENTS: Mapping[str, Callable[[Database, Request], Any]] = {
    "/jobs.json": lambda store, request: jobs_command.document(store),
    "/jobs/{job}.json": lambda store, request: report_command.document(
        store, chosen(store, request.path_params["job"])
    ),
}
"""Those for programs: what the commands print with ``--json``."""


def application(database: str, host: str, ending: Callable[[], bool]) -> Starlette:
    """Return the server of a database at ``host``; streams end when it is ``ending``."""
    shown = str(DatabaseAddress.parse(database))  # without a password

    def reading(make: Callable[[Database, Request], T]) -> Callable[[Request], T]:
        def read(request: Request) -> T:
            with Database(database, read_only=True, timeout=_LOCKED_S) as store:
                return make(store, request)

        return read

    def page(make: Callable[[Database, Request], Page]) -> Callable[[Request], Any]:
        read = reading(make)

        async def answer(request: Request) -> Response:
            if "text/event-stream" in request.headers.get("accept", ""):
                changes = _changes(partial(read, request), ending)
                return StreamingResponse(changes, media_type="text/event-stream", headers=HEADERS)
            found = await run_in_threadpool(read, request)
            return HTMLResponse(found.rendered(shown), headers=HEADERS)

        return answer

    def other(
        make: Callable[[Database, Request], T], response: Callable[[T], Response]
    ) -> Callable[[Request], Any]:
        read = reading(make)

        async def answer(request: Request) -> Response:
            return response(await run_in_threadpool(read, request))

        return answer

    async def failed(request: Request, error: Exception) -> Response:
        status, text = _said(error)
        if request.url.path.endswith(".json"):
            return JSONResponse({"error": text}, status, HEADERS)
        said = joined([element("h1", "Nothing to show"), element("p", f"{text}.")])
        nothing = Page("Nothing to show", {"error": said}, live=False)
        return HTMLResponse(nothing.rendered(shown), status, HEADERS)

    def file(store: Database, request: Request) -> str:
        return jobs.report_file(store, request.path_params["job"])

    return Starlette(
        routes=[
            *(Route(path, other(make, partial(_JSON, headers=HEADERS))) for path, make in DOCUMENTS.items()),
            Route("/jobs/{job}/report.html", other(file, HTMLResponse)),
            *(Route(path, page(make)) for path, make in PAGES.items()),
            Route("/metrics", other(lambda store, _: metrics.text(store), _metrics)),
            Route("/live.js", lambda _: Response(SCRIPT, media_type="text/javascript", headers=HEADERS)),
        ],
        # A page of others cannot reach this one by a name that it has given the loopback address.
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=LOOPBACK if host in LOOPBACK else ("*",))
        ],
        exception_handlers={AutotuneError: failed, HTTPException: failed},
    )


class _JSON(JSONResponse):
    """A document as the commands print it."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, indent=2, default=str).encode()


def _metrics(text: str) -> Response:
    return Response(text, media_type=metrics.TYPE)


def _said(error: Exception) -> tuple[int, str]:
    """Return the status and the message of an error."""
    if isinstance(error, HTTPException):
        text = "there is no such page" if error.status_code == 404 else error.detail
        return error.status_code, text
    return 503 if isinstance(error, DatabaseError) else 404, str(error).rstrip(".")


async def _changes(read: Callable[[], Page], ending: Callable[[], bool]) -> AsyncIterator[str]:
    """Yield events of the parts of a page that have changed, and of what keeps it from being read."""
    known = dict[str, str]()
    while not ending():
        begin, problem, parts = time.monotonic(), "", {}
        try:
            page = await run_in_threadpool(read)
        except AutotuneError as error:
            problem = printable(_said(error)[1])
        else:
            parts = {name: (key_of(part), part.text) for name, part in page.parts.items()}
        changed = {name: part for name, part in parts.items() if known.get(name) != part[0]}
        known.update({name: key for name, (key, _) in changed.items()})
        yield f"data: {json.dumps({'problem': problem, 'parts': changed})}\n\n"
        await asyncio.sleep(max(HEARTBEAT_S, (_IDLE - 1) * (time.monotonic() - begin)))


__all__ = ["DOCUMENTS", "LOOPBACK", "PAGES", "application"]
