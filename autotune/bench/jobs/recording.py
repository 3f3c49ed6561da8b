"""A recorded job as JSON text: sites, options, candidates and what they take, and the machine's seconds and noise."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from autotune.errors import UsageError

FORMAT = 1
SUFFIX = ".job.json"


@dataclass(frozen=True)
class ActionSeconds:
    """The seconds that a machine takes for the parts of actions, beside the runs of the model themselves.

    ``start``: before a job begins. ``build`` and ``time``: a candidate, alone. ``check``: an option against the
    reference. ``process``: a fresh process. ``assemble``: a version of the model; ``load``: the same in each process.
    """

    start: float
    build: float
    time: float
    check: float
    process: float
    assemble: float
    load: float


@dataclass(frozen=True)
class NoiseQuantiles:
    """The noise of a machine: latencies of the same code inside a model over each other, in logs.

    ``process`` and ``round`` are quantiles, evenly spaced from the least to the largest, of what each process and each
    round draws for a dispatch; ``session`` is the standard deviation of what moves between two measurements, ``alone``
    that of isolated timings minutes apart.
    """

    process: tuple[float, ...]
    round: tuple[float, ...]
    session: float
    alone: float


@dataclass(frozen=True)
class RecordedChoice:
    """An option of a site: the keys of its workloads, its estimate, and the log of what it takes over the default.

    ``log`` has the standard deviation ``error``: that of the prior where it was never compared.
    """

    name: str
    workloads: tuple[str, ...]
    expected_ns: float
    log: float
    error: float


@dataclass(frozen=True)
class RecordedPlace:
    """A site: its dispatches, what one of them takes untuned inside the model, and its options, the default first."""

    names: tuple[str, ...]
    workload: str
    ns: float
    choices: tuple[RecordedChoice, ...]


@dataclass(frozen=True)
class RecordedCandidates:
    """A workload with its default, in ns alone, and the candidates that were measured.

    Of each the latency alone over the default's (0 for one that failed), the log of its latency over the default's
    inside the model, and the standard deviation of that.
    """

    key: str
    kind: str
    floor_ns: float
    alone_ns: float
    candidates: tuple[tuple[float, float, float], ...]


@dataclass(frozen=True)
class RecordedJob:
    """All that is known of a model after a job, so that other jobs of it can be simulated."""

    model: str
    target: str
    machine: Mapping[str, str]
    nbytes: int
    seconds: ActionSeconds
    noise: NoiseQuantiles
    places: tuple[RecordedPlace, ...]
    workloads: tuple[RecordedCandidates, ...]

    def to_json(self) -> str:
        """Return it as JSON text, a line for each site and workload."""
        head = {"format": FORMAT, **{f.name: getattr(self, f.name) for f in fields(self)[:4]}}
        head |= {"seconds": asdict(self.seconds), "noise": asdict(self.noise)}
        places = [
            [p.names, p.workload, p.ns, [list(vars(c).values()) for c in p.choices]] for p in self.places
        ]
        workloads = [list(vars(w).values()) for w in self.workloads]
        lines = [f"{json.dumps(name)}: {_text(value)}" for name, value in head.items()]
        lines += [_lines("places", places), _lines("workloads", workloads)]
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @staticmethod
    def from_json(text: str, where: str = "the recording") -> RecordedJob:
        """Return the recording of a text; raises UsageError for another text."""
        try:
            found = json.loads(text)
            if found["format"] != FORMAT:
                raise UsageError(f"{where} has format {found['format']}, allowed: {FORMAT}")
            return RecordedJob(
                str(found["model"]),
                str(found["target"]),
                dict(found["machine"]),
                int(found["nbytes"]),
                ActionSeconds(**found["seconds"]),
                _noise(found["noise"]),
                tuple(_place(*each) for each in found["places"]),
                tuple(_candidates(*each) for each in found["workloads"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{where} is no recording of `autotune replay record`: {error}") from error

    def write(self, folder: Path) -> Path:
        """Write it to a file in ``folder`` that is named after the model; raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.model}{SUFFIX}"
        path.write_text(self.to_json(), encoding="utf-8")
        return path


def read_jobs(folder: Path) -> list[RecordedJob]:
    """Return the recorded jobs of a folder by name; raises UsageError where there are none."""
    paths = sorted(folder.glob(f"*{SUFFIX}"))
    if not paths:
        raise UsageError(
            f"{folder} has no recorded jobs; make one: autotune replay record MODEL --db tuning.db -o {folder}"
        )
    return [RecordedJob.from_json(path.read_text(encoding="utf-8"), str(path)) for path in paths]


def _noise(found: Mapping[str, Any]) -> NoiseQuantiles:
    return NoiseQuantiles(tuple(found["process"]), tuple(found["round"]), found["session"], found["alone"])


def _place(names: Sequence[str], workload: str, ns: float, choices: Sequence[Sequence[Any]]) -> RecordedPlace:
    found = (RecordedChoice(name, tuple(keys), *rest) for name, keys, *rest in choices)
    return RecordedPlace(tuple(names), workload, ns, tuple(found))


def _candidates(
    key: str, kind: str, floor_ns: float, alone_ns: float, found: Sequence[Sequence[float]]
) -> RecordedCandidates:
    candidates = tuple((alone, log, error) for alone, log, error in found)
    return RecordedCandidates(key, kind, floor_ns, alone_ns, candidates)


def _text(value: object) -> str:
    return json.dumps(_short(value), ensure_ascii=False, separators=(",", ":"))


def _lines(name: str, values: Sequence[object]) -> str:
    return f"{json.dumps(name)}: [\n" + ",\n".join(map(_text, values)) + "\n]"


def _short(value: Any) -> Any:
    """Return a value with numbers of four digits: nothing was measured more exactly."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, Mapping):
        return {name: _short(each) for name, each in value.items()}
    return [_short(each) for each in value] if isinstance(value, (list, tuple)) else value


__all__ = [
    "FORMAT",
    "SUFFIX",
    "ActionSeconds",
    "NoiseQuantiles",
    "RecordedCandidates",
    "RecordedChoice",
    "RecordedJob",
    "RecordedPlace",
    "read_jobs",
]
