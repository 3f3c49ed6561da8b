"""A tuning database on a PostgreSQL server: what it shares with a file, restarts, and secrets."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Connection

from autotune.cli import main as cli
from autotune.database import Database, JobRow
from autotune.database.address import DatabaseAddress
from autotune.errors import DatabaseError, UsageError
from autotune.tuning.jobs.budget import Budget
from autotune.tuning.jobs.job import Job
from autotune.tuning.jobs.subject import Subject, TunedModel
from autotune.tuning.measure.interface import Built
from autotune.tuning.measure.outcome import Measurement
from autotune.tuning.report.progress import PlainLines
from tests.database.conformance import Conformance
from tests.database.examples import KEY, job, options, prepare, run, schedules
from tests.database.server import PASSWORD, Server
from tests.patience import PATIENCE_S
from tests.tuning.simulated import SimulatedMeasurer, Ticks
from tests.tuning.synthetic import TARGET, Synthetic, measurer

SYNTHETIC = Synthetic("a")


class TestPostgres(Conformance):
    """All that every database must do."""

    @pytest.fixture
    def empty(self, server: Server) -> str:
        return server.create()


@pytest.fixture
def database(server: Server) -> Database:
    database = Database(server.create(), timeout=PATIENCE_S)
    prepare(database)
    return database


def test_a_server_that_is_restarted_is_waited_for(database: Database, server: Server) -> None:
    heard: list[str] = []
    with database.session.telling(heard.append):
        for mode in ("fast", "immediate"):
            server.stop(mode)
            back = threading.Timer(0.7, server.start)
            back.start()
            assert database.record(run(mode, 1.0))
            back.join()
    assert [found.trace_key for found in database.records()] == ["fast", "immediate"]
    assert [line.startswith("waiting up to 300 s for the database postgresql://") for line in heard] == [
        True,
        False,
    ] * 2
    assert heard[1] == ""
    database.close()


def test_a_server_that_stays_away_is_said_to_be_gone(server: Server) -> None:
    database = Database(server.create(), timeout=0.5)
    server.stop()
    try:
        with pytest.raises(DatabaseError) as caught:
            database.records()
        assert re.search(r"did not answer for \d+ s", str(caught.value))
        assert "the same command goes on from there" in str(caught.value)
        with pytest.raises(DatabaseError, match="refused"):
            Database(server.url("postgres"))
    finally:
        server.start()


class Restarting(SimulatedMeasurer):
    """Restarts the server while some candidates are measured."""

    def __init__(self, server: Server) -> None:
        super().__init__(measurer(SYNTHETIC)._answer)
        self._server = server

    def measure(self, built: Built, default_ns: float) -> Measurement:
        if len(self.measured) in (7, 20, 21):
            self._server.stop("fast" if len(self.measured) == 20 else "immediate")
            threading.Timer(0.3, self._server.start).start()
        return super().measure(built, default_ns)


def test_a_job_goes_on_when_its_server_was_restarted(server: Server) -> None:
    out, store = io.StringIO(), Database(server.create())
    measuring = Restarting(server)
    workload: Any = SYNTHETIC.workload
    report = Job(
        models=[
            TunedModel("model", [Subject(("a0",), workload, SYNTHETIC.space, SYNTHETIC.space.default())])
        ],
        target=TARGET,
        budget=Budget(trials=40),
        database=store,
        measurer=measuring,
        progress=PlainLines(out),
        clock=Ticks(),
    ).run()
    assert (report.trials, report.session_trials, len(store.records())) == (40, 40, 40)
    assert len(measuring.measured) == 40
    assert [row.state for row in store.jobs()] == [JobRow.DONE]
    said = [line for line in out.getvalue().splitlines() if "the database" in line]
    assert any(
        "waiting up to 60 s for the database postgresql://tuner:***@127.0.0.1" in line for line in said
    )
    assert any("the database answers again" in line for line in said)
    assert "s3cr" not in out.getvalue() + report.database
    store.close()


class Unanswered:
    """Stores what a transaction does, and then breaks the connection before it can say so."""

    def __init__(self, database: Database, server: Server) -> None:
        self._server, self._armed = server, False
        event.listen(database.session._engine, "commit", self.commit)

    def arm(self) -> None:
        self._armed = True

    def commit(self, connection: Connection) -> None:
        if not self._armed:
            return
        self._armed = False
        connection.connection.commit()
        self._server.stop("immediate")
        self._server.start()
        connection.exec_driver_sql("SELECT 1")  # fails as a commit without an answer does
        raise AssertionError("the connection survived")


@pytest.mark.parametrize("what", ["record", "schedules", "options", "claim", "take over", "layers"])
def test_what_was_stored_without_an_answer_is_not_stored_twice(
    database: Database, server: Server, what: str
) -> None:
    database.record(run("known", 5.0))
    database.claim_job(job(owner="dead", name="old", fingerprint="left"), lambda owner: True)
    (known,) = database.records()
    actions: dict[str, Callable[[], object]] = {
        "record": lambda: database.record(run("a", 1.0)),
        "schedules": lambda: database.compared(
            KEY.workload, KEY.target, "schedule", schedules((known, 4.0), won="known"), "net"
        ),
        "options": lambda: database.compared(
            KEY.workload, KEY.target, "option", options(("a", 1.0), won="a"), "net"
        ),
        "claim": lambda: database.claim_job(job(name="new"), lambda owner: True).id,
        "take over": lambda: database.claim_job(job(name="n", fingerprint="left"), lambda o: o != "dead").id,
        "layers": lambda: database.add_layers("old", {KEY.workload: ("a",)}),
    }
    Unanswered(database, server).arm()
    said = actions[what]()
    assert said == {"record": True, "claim": "new", "take over": "old"}.get(what)
    counts = {"runs": 1, "comparisons": 0, "jobs": 1, "layers": 0}
    grown = {
        "record": "runs",
        "schedules": "comparisons",
        "options": "comparisons",
        "claim": "jobs",
        "layers": "layers",
    }
    if what in grown:
        counts[grown[what]] += 1
    assert {name: _count(database, name) for name in counts} == counts
    database.close()


def _count(database: Database, table: str) -> int:
    query = f"SELECT count(*) FROM {table}"
    return database.session.read(lambda connection: int(connection.exec_driver_sql(query).scalar_one()))


def test_no_password_is_shown(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = server.create()
    name = url.rpartition("/")[2]
    with Database(url) as database:
        prepare(database)
        assert repr(database) == f"<Database {database.where}>"
        assert database.where.startswith("postgresql://tuner:***@127.0.0.1:")
    shown = []
    for arguments in (
        ["stats", "--db", url],
        ["stats", "--db", url, "--json"],
        ["verify", "--db", url],
        ["export", tmp_path / "x.csv", "--db", url],
        ["prune", "--db", url],
        ["merge", url, "--db", tmp_path / "mine.db"],
        ["merge", tmp_path / "mine.db", "--db", url, "--json"],
        ["stats", "--db", server.url("none")],
        ["stats", "--db", url.replace("127.0.0.1", "no such host")],
        ["stats", "--db", url.replace("tuner:", "nobody:")],
        ["stats", "--db", url.replace("postgresql", "mysql")],
        ["stats", "--db", url.replace("127.0.0.1", "127.0.0.1:port")],
        ["stats", "--db", f"postgresql://{url.partition('@')[2]}?user=tuner&password={PASSWORD}x"],
    ):
        code = cli.run(["db", *map(str, arguments)])
        captured = capsys.readouterr()
        shown.append(captured.out + captured.err)
        assert code == 0 or "\n" not in shown[-1].strip() or arguments[0] == "verify", shown[-1]
    secret = url.partition("tuner:")[2].partition("@")[0]
    for text in shown:
        assert PASSWORD not in text
        assert secret not in text
        assert "s3cr" not in text
    assert name in shown[0]
    assert (tmp_path / "x.csv").exists()


def test_addresses_are_shown_without_secrets() -> None:
    shown = str(
        DatabaseAddress.parse("postgresql+psycopg://u:p@host:1/db?sslmode=require&password=x&sslpassword=y")
    )
    assert shown == "postgresql://u:***@host:1/db?sslmode=require"
    assert "p@" not in repr(DatabaseAddress.parse("postgresql://u:p@host/db"))
    for wrong in (
        "mysql://u:secret@host/db",
        "postgresql://u:secret@host:port/db",
        "sqlite://",
        "x://a:secret@",
    ):
        with pytest.raises(UsageError, match="not a database URL") as caught:
            DatabaseAddress.parse(wrong)
        assert "secret" not in str(caught.value)
        assert caught.value.__cause__ is None


def test_a_lock_that_is_not_released_is_said(server: Server, database: Database) -> None:
    with Database(str(server.url(database.where.rpartition("/")[2])), timeout=0.2) as other:

        def hold(connection: Connection) -> None:
            connection.exec_driver_sql("LOCK TABLE runs")
            with pytest.raises(DatabaseError, match="another process keeps it locked"):
                other.record(run("a", 1.0))

        database.session.write(hold)
    database.close()
