"""``autotune serve``."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING

import click

from autotune.cli.common import EPILOG_DATABASE, announce, database_option, json_option, print_json
from autotune.cli.echo import echo
from autotune.distribution import install
from autotune.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    import uvicorn


@click.command(epilog=f"Example: autotune serve --db tuning.db. {EPILOG_DATABASE}")
@database_option
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8765,
    show_default=True,
    metavar="N",
    help="The port; 0 for any that is free.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="The address to listen at. By others than the loopback's everybody who reaches it can read the database.",
)
@json_option
def command(database: str | None, port: int, host: str, as_json: bool) -> None:
    """Show the jobs, workloads and cost models of a database in a browser, until Ctrl-C.

    Pages of jobs change as these go on, and stay when they have ended. The database is only read. /metrics is for
    Prometheus, /jobs.json and /jobs/JOB.json are what `jobs` and `report` print with --json.
    """
    announce("starting the server")
    _need_extra()
    from autotune.cli.web.app import LOOPBACK
    from autotune.database.opening import default_database, opened

    where = default_database() if database is None else database
    with opened(where, read_only=True) as store:
        shown = store.where
    listening = listen(host, port)
    server = server_of(str(where), host)
    url = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}/"
    if as_json:
        print_json({"url": url, "database": shown})
    else:
        echo(f"{url} shows {shown} until Ctrl-C")
    if host not in LOOPBACK:
        echo(f"whoever reaches {host} can read it: there is no password", err=True)
    with contextlib.suppress(KeyboardInterrupt):  # the usual end
        server.run([listening])


def server_of(database: str, host: str) -> uvicorn.Server:
    """Return the server of a database, which takes the sockets that it is run with."""
    import uvicorn

    from autotune.cli.web.app import application

    app = application(database, host, lambda: server.should_exit)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, lifespan="off", ws="none", server_header=False
    )
    server = uvicorn.Server(config)
    return server


def _need_extra() -> None:
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"{error.name!r}, which serves pages, is not installed: {install('web')}"
        ) from error


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; raises UsageError where it cannot."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
        raise UsageError(
            f"cannot listen at port {port} of {host}: {why}; give another --port, or 0 for any"
        ) from error


__all__ = ["command", "listen", "server_of"]
