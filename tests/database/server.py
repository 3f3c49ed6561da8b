"""A PostgreSQL server of its own for tests: a cluster in a temporary folder, on the loopback address."""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

from tests.patience import PATIENCE_S

PASSWORD = "s3cr t/@:word"
_USER = "tuner"
_PATIENT = ("-t", f"{PATIENCE_S:.0f}")


def binaries() -> Path | None:
    """The folder of initdb and pg_ctl; Debian keeps them off the path."""
    on_path = shutil.which("pg_ctl")
    folders = [Path(on_path).resolve().parent] if on_path else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


class Server:
    """One cluster; runs as another user where this process is root, which the server refuses."""

    def __init__(self, folder: Path) -> None:
        self._bin = folder
        self._home = Path(tempfile.mkdtemp(prefix="autotune-postgres-"))
        self._account = _unprivileged()
        self._port = _free_port()
        password = self._home / "password"
        password.write_text(PASSWORD)
        if self._account is not None:
            for path in (self._home, password):
                os.chown(path, self._account.pw_uid, self._account.pw_gid)
        self._run(
            "initdb", "--auth=scram-sha-256", f"--pwfile={password}", f"--username={_USER}", "--no-sync"
        )
        self.start()

    def _run(self, command: str, *arguments: str) -> None:
        account = self._account
        done = subprocess.run(
            [self._bin / command, "-D", self._home / "data", *arguments],
            cwd=self._home,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
            extra_groups=[] if account else None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if command == "initdb" else subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, f"{command} failed: {done.stdout}; {self.log()}"

    def log(self) -> str:
        """Return the server's output."""
        log = self._home / "log"
        return log.read_text() if log.exists() else ""

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"-p {self._port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self._home}"
        self._run(
            "pg_ctl", "-w", *_PATIENT, "-l", str(self._home / "log"), "-o", f"{options} -c fsync=off", "start"
        )

    def stop(self, mode: str = "fast") -> None:
        """``fast`` ends all connections, ``immediate`` is a crash."""
        self._run("pg_ctl", "-w", *_PATIENT, "-m", mode, "stop")

    def remove(self) -> None:
        """Stop it for good."""
        self.stop("immediate")
        shutil.rmtree(self._home)

    def url(self, database: str) -> str:
        """The URL of a database, with the password in it."""
        from urllib.parse import quote

        return f"postgresql://{_USER}:{quote(PASSWORD, safe='')}@127.0.0.1:{self._port}/{database}"

    def create(self) -> str:
        """The URL of a new database."""
        name = f"tuning_{secrets.token_hex(6)}"
        self.execute("postgres", f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, database: str, statement: str) -> None:
        """Run one statement as the owner of everything."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[arg-type]


def _unprivileged() -> pwd.struct_passwd | None:
    """The account that the server runs as; None for this process's own."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise AssertionError("neither the account postgres nor nobody exists")


def _free_port() -> int:
    """Return a port that stays free while the server is away: no system gives those below 32,768 to clients."""
    for port in range(2_000 + os.getpid() % 30_000, 32_768):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")
