"""Measured random candidates of one workload, as a Parquet file."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.bench import machine
from autotune.database.export import export
from autotune.database.inside import ALONE_NOISE, INSIDE_NOISE
from autotune.errors import KnobError, UsageError
from autotune.graph.region import Workload
from autotune.schedule.knob import Value
from autotune.target import Target
from cost_models.dataset import COLUMNS as TRAINING

if TYPE_CHECKING:
    from pandas import DataFrame, Series

    from search_spaces.space import Space

COLUMNS = ("config", "trace_key", "code_key", "outcome", "ratio", "turns", "inside", "rounds")
"""``config``: knob values as JSON text; ``ratio``: latency alone over the default's that was read beside it, the median
of so many ``turns``, missing where ``outcome`` is not "ok"; ``inside``: the same inside the model, of so many
``rounds``, missing where it was not read there. Equal machine code (``code_key``) is read once."""
CORES, FREE, NOT_FREE = "cores", "free", "not free"
"""A fact of the machine: whether all cores were there before and after a workload was timed. Where they were not,
parallel candidates look slower than they are."""
_LEAST = 0.25
"""A recording of which a smaller share is legal today says nothing of today's space."""
_DIGITS = 12


@dataclass(frozen=True)
class RecordingFacts:
    """The subject of a recording: the dispatch's ``name`` in a ``model``, canonical texts of workload and target, the
    default's nanoseconds alone and inside the model (None where nothing was read there), machine and versions."""

    model: str
    name: str
    workload: str
    target: str
    family: str
    size: int
    """Legal candidates of the space; an estimate where it is large."""
    default_ns: float
    default_inside_ns: float | None
    machine: Mapping[str, str]


@dataclass(frozen=True)
class CandidateRecording:
    """A table of candidates with the :data:`COLUMNS`, the default first."""

    facts: RecordingFacts
    table: DataFrame

    @property
    def title(self) -> str:
        """The model's and the dispatch's names."""
        return f"{self.facts.model} {self.facts.name}"

    @cached_property
    def space(self) -> Space:
        """The workload's space as it is today."""
        from search_spaces.spaces import space_for

        return space_for(Workload.parse(self.facts.workload), Target.from_json(self.facts.target))

    @cached_property
    def today(self) -> tuple[list[dict[str, Value]], DataFrame]:
        """The candidates that are legal in today's space, and their rows.

        A knob that is newer than the recording has its default. Raises UsageError where few are left.
        """
        found = [self._today(json.loads(text)) for text in self.table.config]
        legal = [config is not None for config in found]
        if sum(legal) < _LEAST * len(legal):
            raise UsageError(
                f"{self.title}: {sum(legal)} of {len(legal)} recorded candidates are legal in today's space; "
                "record it again: autotune replay candidates"
            )
        return [config for config in found if config is not None], self.table[legal].reset_index(drop=True)

    def _today(self, recorded: Mapping[str, Value]) -> dict[str, Value] | None:
        """A recorded configuration in today's knobs; None for one that is not legal, or has a knob that is gone."""
        default = self.space.default()
        if not recorded.keys() <= default.keys():
            return None
        try:
            return self.space.check({**default, **recorded})
        except KnobError:
            return None

    def training_table(self, *, inside: bool) -> DataFrame:
        """The candidates that are legal today as a cost model learns from them (:data:`cost_models.dataset.COLUMNS`).

        Labels are readings alone or, with ``inside``, those inside the model; a candidate without one is then no faster
        than the default, as for a job, unless none was read there.
        """
        configs, rows = self.today
        ratio, noise = rows.ratio, ALONE_NOISE / rows.turns.clip(lower=1) ** 0.5
        if inside and rows.inside.notna().any():
            ratio = rows.inside.fillna(ratio.clip(lower=1.0))
            noise = noise.where(rows.inside.isna(), INSIDE_NOISE)
        return rows.assign(
            workload_text=self.facts.workload,
            target_json=self.facts.target,
            space_key=self.space.key,
            config=configs,
            latency_ns=ratio * self.facts.default_ns,
            ratio=ratio,
            noise=noise,
            model=self.facts.model,
            created=self._made(),
        )[list(TRAINING)]

    def _made(self) -> float:
        """When it was recorded, in seconds since 1970; NaN where that is not known."""
        if "date" not in self.facts.machine:
            return math.nan
        return datetime.strptime(self.facts.machine["date"], machine.DATE).replace(tzinfo=UTC).timestamp()

    def write(self, folder: Path) -> Path:
        """Write it to a file in ``folder`` that is named after its title, its keys shortened; raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{re.sub(r'[^0-9A-Za-z]+', '-', self.title).strip('-').lower()}.parquet"
        table = self.table.assign(
            **{name: _shortened(self.table[name]) for name in ("trace_key", "code_key")}
        )
        table.attrs = asdict(self.facts)  # kept in the file's metadata
        export(table, path)
        return path

    @staticmethod
    def read(path: Path) -> CandidateRecording:
        """Read a file that :meth:`write` made; raises UsageError for another."""
        import pandas

        try:
            table = pandas.read_parquet(path)
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot read {path}: {error}") from error
        wanted = {field.name for field in fields(RecordingFacts)}
        if table.attrs.keys() != wanted or not {*COLUMNS} <= {*table.columns}:
            raise UsageError(f"{path} is no recording of `autotune replay candidates`")
        facts, table.attrs = RecordingFacts(**table.attrs), {}
        return CandidateRecording(facts, table)


def _shortened(keys: Series[str]) -> Series[str]:
    """Hexadecimal digits that tell the keys of a table apart: whole ones are most of a file, for nothing packs them."""
    length = _DIGITS
    while keys.str[:length].nunique() < keys.nunique():
        length *= 2
    return keys.str[:length]


def training_table(folder: Path, *, inside: bool) -> DataFrame:
    """The recordings of a folder as a cost model learns from them; raises UsageError where there are none."""
    import pandas

    found = [recording.training_table(inside=inside) for recording in read_all(folder)]
    return pandas.concat(found, ignore_index=True)


def read_all(folder: Path) -> list[CandidateRecording]:
    """The recordings of a folder, by name; raises UsageError where there are none."""
    found = [CandidateRecording.read(path) for path in sorted(folder.glob("*.parquet"))]
    if not found:
        raise UsageError(
            f"{folder} has no recordings; make some: autotune replay candidates MODEL -o {folder}"
        )
    return found


__all__ = [
    "COLUMNS",
    "CORES",
    "FREE",
    "NOT_FREE",
    "CandidateRecording",
    "RecordingFacts",
    "read_all",
    "training_table",
]
