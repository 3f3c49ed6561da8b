"""The studies of a job in a storage of Optuna's: what optuna-dashboard opens, and what callbacks get.

A search works on a study in memory. Each trial that ends is then added, as a whole and once, to the study of its
workload in the storage, so that a trial costs one entry there, not one for each of its parameters. The default storage
is a journal file of the job's own: it is read when the job is continued, not the files of all jobs before.
"""

from __future__ import annotations

import errno
import json
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import optuna
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from optuna.trial import FrozenTrial, create_trial

from autotune.errors import StudyError

if TYPE_CHECKING:
    from optuna.study import Study

StorageLike: TypeAlias = str | Path | BaseStorage
"""A URL of a database, the path of a journal file, or a storage of Optuna's."""
TrialCallback: TypeAlias = Callable[["Study", FrozenTrial], object]
"""Called with a study and each trial that has ended, as those of ``study.optimize`` are."""


class _Journal(JournalFileBackend):  # type: ignore[misc]  # Optuna is read without its types
    """A journal file that a process may die over, or a disk fill up: an entry is written as a whole or not at all.

    Entries are not synchronised to the disk one by one, which takes ten times as long: what a computer loses that loses
    its power is in the tuning database, and is added again when the job is continued.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mine = JournalFileSymlinkLock(str(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(str(path), self._mine)
        self._locked(self._cut)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Write entries; raises OSError, without a trace of them in the file."""
        text = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs)
        self._locked(lambda: self._append(text.encode()))

    def _locked(self, act: Callable[[], None]) -> None:
        self._mine.acquire()
        try:
            act()
        finally:
            self._mine.release()

    def _append(self, entries: bytes) -> None:
        with self._path.open("ab", buffering=0) as file:
            begin = file.tell()
            try:
                if file.write(entries) != len(entries):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                os.truncate(self._path, begin)
                raise

    def _cut(self) -> None:
        """Remove what a process that died has left of an entry."""
        with self._path.open("rb+") as file:
            end = size = file.seek(0, os.SEEK_END)
            while end and (file.seek(end - 1), file.read(1))[1] != b"\n":
                end -= 1
            if end < size:
                file.truncate(end)


def opened_storage(where: StorageLike) -> BaseStorage:
    """Return the storage that is meant. Raises StudyError."""
    if isinstance(where, BaseStorage):
        return where
    with _reported("open", str(where)):
        if "://" in str(where):
            return RDBStorage(str(where))
        return JournalStorage(_Journal(Path(where)))


@contextmanager
def _reported(what: str, where: str) -> Iterator[None]:
    """Raise StudyError for what a storage raises."""
    from optuna.exceptions import OptunaError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    except (OSError, OptunaError, SQLAlchemyError, json.JSONDecodeError, ImportError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error).split("\n")[0]
        raise StudyError(
            f"cannot {what} the studies in {where}: {why}\n"
            "  every measured run is in the tuning database; the same call goes on, with another study_storage if given"
        ) from error


@dataclass
class Record:
    """The study of a search in the storage; it is made when there is a trial for it."""

    studies: Studies
    layer: str
    metrics: Sequence[str]
    about: Mapping[str, Any]
    """User attributes of the study."""

    def add(self, trial: FrozenTrial) -> None:
        """Add a trial that has ended, and call the callbacks of the job."""
        self.studies.add(self, trial)

    def restore(self, trial: FrozenTrial) -> None:
        """Add a trial of an earlier session of the job, unless it is there."""
        key = self._key(trial)
        if key not in self._keys:
            self._keys.add(key)
            self.studies.add(self, trial)

    @cached_property
    def study(self) -> Study:
        """The study; that of an earlier session of the job where there is one."""
        return self.studies.open(self.layer, self.metrics, self.about)

    @cached_property
    def _keys(self) -> set[str]:
        return {self._key(trial) for trial in self.study.get_trials(deepcopy=False)}

    def _key(self, trial: FrozenTrial) -> str:
        """Return what is the same of a trial in each session: a candidate is measured once, a plan often."""
        return json.dumps([trial.params, None if self.layer else trial.values], sort_keys=True)


class Studies:
    """The studies of a job: one a workload, called ``JOB/LAYER``, and that of whole plans, ``JOB``.

    ``given`` is a user's study, which gets the trials of all workloads; callbacks are called with it or, without one,
    with that of the workload.
    """

    def __init__(
        self,
        storage: StorageLike,
        name: str,
        callbacks: Sequence[TrialCallback] = (),
        given: Study | None = None,
        *,
        several: bool = True,
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.name = name
        self.where = "the given storage" if isinstance(storage, BaseStorage) else str(storage)
        self.stopped = False
        self._storage = opened_storage(storage)
        self._callbacks = callbacks
        self._given = given
        self._several = several

    def record(self, layer: str, metrics: Sequence[str], about: Mapping[str, Any]) -> Record:
        """Return the record of a workload's search, or for no layer that of the plans."""
        return Record(self, layer, metrics, about)

    def open(self, layer: str, metrics: Sequence[str], about: Mapping[str, Any]) -> Study:
        """Return a study of the job. Raises StudyError."""
        name = f"{self.name}/{layer}" if layer else self.name
        with _reported("open", self.where):
            study = optuna.create_study(
                storage=self._storage,
                study_name=name,
                directions=["minimize"] * len(metrics),
                load_if_exists=True,
            )
            if study.metric_names is None:
                study.set_metric_names(list(metrics))
                for key, value in about.items():
                    study.set_user_attr(key, value)
        return study

    def add(self, record: Record, trial: FrozenTrial) -> None:
        """Add a trial to the studies that get it, and call the callbacks."""
        seen = record.study
        with _reported("write", self.where):
            self._append(record.study, trial, "")
        if self._given is not None and record.layer:
            seen = self._given
            with _reported("write", f"the study {seen.study_name!r}"):
                self._append(seen, trial, f"{record.layer} " if self._several else "")
        if not record.layer or not self._callbacks:
            return
        ended = seen.get_trials(deepcopy=False)[-1]
        with stoppable(seen):
            for call in self._callbacks:
                call(seen, ended)
        self.stopped |= was_stopped(seen)

    def _append(self, study: Study, trial: FrozenTrial, prefix: str) -> None:
        copied = create_trial(
            state=trial.state,
            values=trial.values,
            params={prefix + name: value for name, value in trial.params.items()},
            distributions={prefix + name: of for name, of in trial.distributions.items()},
            user_attrs=trial.user_attrs,
            intermediate_values=trial.intermediate_values,
        )
        copied.datetime_start, copied.datetime_complete = trial.datetime_start, trial.datetime_complete
        study.add_trial(copied)


@contextmanager
def stoppable(study: Study) -> Iterator[None]:
    """Allow ``study.stop()`` meanwhile, as inside ``study.optimize``."""
    within = study._thread_local  # the only way: Optuna refuses stop() unless it runs the loop itself
    before, within.in_optimize_loop = within.in_optimize_loop, True
    try:
        yield
    finally:
        within.in_optimize_loop = before


def was_stopped(study: Study) -> bool:
    """Return whether somebody has called ``study.stop()``."""
    return bool(study._stop_flag)


def study_name(model: str, job: str) -> str:
    """Return the name of a job's study: its model, without folders, and the job.

    >>> study_name("zoo:squeezenet", "1a2b3c"), study_name("models/net.onnx", "1a2b3c")
    ('squeezenet 1a2b3c', 'net 1a2b3c')
    """
    return f"{Path(model.removeprefix('zoo:')).name.removesuffix('.onnx')} {job}"


def default_storage(database: str, name: str, otherwise: Path) -> Path:
    """Return the journal of a job: in the folder ``DATABASE.studies``, or in ``otherwise`` for a database that is no
    file."""
    folder = otherwise if "://" in database else Path(database + ".studies")
    return folder / (re.sub(r"[^\w.-]+", "-", name) + ".log")


__all__ = [
    "Record",
    "StorageLike",
    "Studies",
    "TrialCallback",
    "default_storage",
    "opened_storage",
    "stoppable",
    "study_name",
    "was_stopped",
]
