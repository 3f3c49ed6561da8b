"""The options of every benchmark that runs us beside peers, and what is done with them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from autotune.cli import options_bench as shared
from autotune.cli.options_bench import Command, Output, number_option
from autotune.cli.options_peers import peer_python_option

if TYPE_CHECKING:
    from autotune.bench.problem import Case
    from autotune.bench.result import Result
    from autotune.bench.systems import System
    from autotune.bench.tables import Table

Tables: TypeAlias = "Callable[[str, Sequence[Result], Mapping[str, str]], Sequence[Table]]"
"""The tables of one number of threads: what their titles say of it, the results, the peers' labels by name."""


@dataclass(frozen=True)
class Asked:
    """The values of the options."""

    output: Output
    threads: Sequence[int]
    database: str | None
    trials: int | None
    minutes: float | None
    peers: Sequence[str]
    peer_pythons: Sequence[str]
    peer_trials: int
    peer_minutes: float
    peer_folder: Path | None
    rounds: int
    processes: int
    turn: float

    def run(
        self,
        title: str,
        about: str,
        cases: Iterable[Case],
        tables: Tables,
        *,
        first: Sequence[System] = (),
        notes: Sequence[str] = (),
        before: Sequence[Table] = (),
        data: Sequence[Any] = (),
        native: bool = False,
        trials_per_workload: bool = False,
    ) -> None:
        """Compare all cases, and write or print the page; the file has what is there after each case.

        The systems ``first`` take part before the peers. The tables ``before`` come before those of the cases, and
        ``data`` before their numbers. Raises MissingExtraError for a peer that is not
        installed, and what :func:`autotune.bench.compare.compare` raises.
        """
        from autotune.bench.compare import BenchmarkPlan, PeerTuning
        from autotune.bench.session import run
        from autotune.bench.side_by_side import Pace
        from autotune.bench.systems import find_peers

        systems = [*first, *find_peers(self.peers, self.peer_pythons)]
        labels = {system.name: system.label for system in systems}
        plan = BenchmarkPlan(
            self.threads,
            systems,
            Pace(self.rounds, self.processes, self.turn, native=native),
            self.database,
            self.trials,
            trials_per_workload,
            60 * self.minutes if self.minutes else None,
            PeerTuning(self.peer_trials, 60 * self.peer_minutes, self.peer_folder),
        )

        def labelled(threads_text: str, results: Sequence[Result]) -> Sequence[Table]:
            return tables(threads_text, results, labels)

        page = self.output.document(title, about, before, list(data), notes)
        self.output.finish(run(page, cases, plan, labelled, shared.say, self.output.save))


_FIELDS = tuple(field.name for field in fields(Asked) if field.name != "output")


def side_by_side(
    *, threads: str, peers: str, rounds: int, trials: str = "--trials", of_what: str
) -> Callable[[Command], Command]:
    """Return adds the options, which the command gets as :class:`Asked`, its first argument.

    ``threads``, ``peers`` and ``rounds`` are defaults; ``trials`` is the option for tuning, ``of_what``
    what each has so many trials.
    """

    def add(command: Command) -> Command:
        @functools.wraps(command)
        def asking(output: Output, **values: Any) -> None:
            given = {name: values.pop(name) for name in _FIELDS}
            command(Asked(output, **given), **values)

        made = shared.with_output(asking)
        for option in reversed(_options(threads, peers, rounds, trials, of_what)):
            made = option(made)
        return made

    return add


def _options(
    threads: str, peers: str, rounds: int, trials: str, of_what: str
) -> list[Callable[[Command], Command]]:
    """Return the options in the order of the help."""
    return [
        shared.threads_option(threads),
        click.option(
            "--db",
            "database",
            metavar="FILE|URL",
            help="Also measure with the schedules that this tuning database knows.",
        ),
        click.option(
            trials,
            "trials",
            type=click.IntRange(1),
            metavar="N",
            help=f"First tune until the database has N runs of each {of_what}, or nothing more is gained.",
        ),
        click.option(
            "--tune-minutes",
            "minutes",
            type=click.FloatRange(0.0, min_open=True),
            metavar="M",
            help="Time for all tuning together, in equal shares; the table has what was reached.",
        ),
        click.option(
            "--peers",
            default=peers,
            show_default=True,
            metavar="NAMES",
            callback=lambda _context, _parameter, value: _names(value),
            help="Systems to compare with: onnxruntime, openvino, torch, metaschedule (operators, tuned "
            "first), earlier (another version of autotune, untuned, of a --peer-python); or none.",
        ),
        peer_python_option(),
        number_option("--peer-trials", 64, "Trials that a peer that tunes gets for each operator."),
        click.option(
            "--peer-minutes",
            type=click.FloatRange(0.0, min_open=True),
            default=30.0,
            show_default=True,
            metavar="M",
            help="After so many minutes its tuner is ended; what it has found by then counts.",
        ),
        click.option(
            "--peer-folder",
            type=click.Path(file_okay=False, path_type=Path),
            metavar="FOLDER",
            help="Where it keeps what it found, so that the next run need not tune it again.",
        ),
        number_option("--rounds", rounds, "Turns that each competitor gets."),
        number_option("--processes", 3, "Fresh processes of each competitor that share its turns."),
        click.option(
            "--turn",
            type=click.FloatRange(0.001, 10.0),
            default=0.1,
            show_default=True,
            metavar="SECONDS",
            help="How long each competitor runs in a round.",
        ),
    ]


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name) if text != "none" else ()


__all__ = ["Asked", "Tables", "side_by_side"]
