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
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
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
    with reported("open", str(where)):
        if "://" in str(where):
            return RDBStorage(str(where))
        return JournalStorage(_Journal(Path(where)))


@contextmanager
def reported(what: str, where: str) -> Iterator[None]:
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


class _Kept:
    """A study in a storage; it is made when there is a trial for it, or found where an earlier session made it."""

    def __init__(self, make: Callable[[], Study], key: Callable[[FrozenTrial], Any]) -> None:
        self._make = make
        self._key = key

    @cached_property
    def study(self) -> Study:
        return self._make()

    @cached_property
    def _keys(self) -> set[str]:
        return {self._text(trial) for trial in self.study.get_trials(deepcopy=False)}

    def _text(self, trial: FrozenTrial) -> str:
        return json.dumps(self._key(trial), sort_keys=True)

    def add(self, trial: FrozenTrial, *, restored: bool) -> None:
        """Add a trial; one of an earlier session unless it is there."""
        if restored and self._text(trial) in self._keys:
            return
        self.study.add_trial(trial)
        if "_keys" in self.__dict__:
            self._keys.add(self._text(trial))


class Record:
    """The study of a search: it gets the trials of the search as they end.

    One that has but one trial is no search: it is made with the second trial, unless callbacks are to get it.
    """

    def __init__(self, studies: Studies, layer: str, kept: _Kept) -> None:
        self._studies = studies
        self.layer = layer
        self._kept = kept
        self._first: tuple[FrozenTrial, bool] | None = None
        self._begun = bool(studies.callbacks) or not layer

    @property
    def study(self) -> Study:
        """The study."""
        return self._kept.study

    def add(self, trial: FrozenTrial, *, restored: bool = False) -> None:
        """Add a trial that has ended, and call the callbacks of the job.

        One of an earlier session (``restored``) is added without them, unless it is there.
        """
        self._studies.add(self, trial, restored=restored)

    def keep(self, trial: FrozenTrial, *, restored: bool) -> None:
        """Add a trial to the study."""
        if not self._begun and self._first is None:
            self._first = trial, restored
            return
        self._begun = True
        if self._first is not None:
            first, self._first = self._first, None
            self._kept.add(first[0], restored=first[1])
        self._kept.add(trial, restored=restored)


class Studies:
    """The studies of a job.

    ``JOB`` has the trials of all workloads (``layers``) with their layer as the parameter, ``JOB/LAYER`` those of one
    with its knobs. A job of one workload has the first alone, with the knobs.
    ``given`` is a user's study, which gets the trials of all workloads with all knobs; callbacks are called with it or,
    without one, with that of the workload.
    """

    def __init__(
        self,
        storage: StorageLike,
        name: str,
        layers: Sequence[str],
        metrics: Sequence[str],
        callbacks: Sequence[TrialCallback] = (),
        given: Study | None = None,
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.name = name
        self.where = "the given storage" if isinstance(storage, BaseStorage) else str(storage)
        self.stopped = False
        self.callbacks = callbacks
        self._storage = opened_storage(storage)
        self._given = given
        self._several = len(layers) > 1
        self._metrics = metrics
        labels = [_label(layer) for layer in layers]
        self._labels = dict(zip(layers, labels if len({*labels}) == len(layers) else layers, strict=True))
        of = CategoricalDistribution([*self._labels.values()])
        self._layer = {"layer": of} if self._several else {}
        self._all = _Kept(lambda: self._open(name, metrics, {}), lambda trial: [trial.params, _config(trial)])

    def record(self, layer: str, about: Mapping[str, Any]) -> Record:
        """Return the record of a workload's search; ``about`` are attributes of the study."""
        name = f"{self.name}/{layer}" if self._several else self.name
        kept = _Kept(lambda: self._open(name, self._metrics, about), lambda trial: trial.params)
        return Record(self, layer, kept)

    def _open(self, name: str, metrics: Sequence[str], about: Mapping[str, Any]) -> Study:
        with reported("open", self.where):
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

    def add(self, record: Record, trial: FrozenTrial, *, restored: bool) -> None:
        """Add a trial to the studies that get it, and call the callbacks."""
        with reported("write", self.where):
            if self._several:
                layer = _copied(
                    trial, {"layer": self._labels[record.layer]}, self._layer, {"config": trial.params}
                )
                self._all.add(layer, restored=restored)
            record.keep(_copied(trial, trial.params, trial.distributions), restored=restored)
        if restored:
            return
        if self._given is not None:
            prefix = f"{record.layer} " if self._several else ""
            params: dict[str, Any] = {"layer": self._labels[record.layer]} if self._several else {}
            params |= {prefix + name: value for name, value in trial.params.items()}
            of = {**self._layer, **{prefix + name: one for name, one in trial.distributions.items()}}
            with reported("write", f"the study {self._given.study_name!r}"):
                self._given.add_trial(_copied(trial, params, of))
        if self.callbacks:
            self._call(self._given or record.study)

    def _call(self, study: Study) -> None:
        ended = study.get_trials(deepcopy=False)[-1]
        with stoppable(study):
            for call in self.callbacks:
                call(study, ended)
        self.stopped |= was_stopped(study)


def _label(layer: str) -> str:
    """Return a layer's name as it fits under a plot.

    >>> _label("003_conv_add_relu_maxpool"), _label("003_conv_add_relu/winograd F(4x4)/001_matmul")
    ('003_conv_add_relu_maxp', '003 winograd F(4x4) 001')
    """
    site, *option = layer.split("/")
    if not option:
        return site[:22]
    return " ".join([site[:3], *option[:-1], option[-1][:3]])


def _config(trial: FrozenTrial) -> Any:
    return trial.user_attrs.get("config")


def _copied(
    trial: FrozenTrial,
    params: Mapping[str, Any],
    distributions: Mapping[str, BaseDistribution],
    more: Mapping[str, Any] | None = None,
) -> FrozenTrial:
    """Return a trial with these parameters, without what samplers have noted."""
    copied = create_trial(
        state=trial.state,
        values=trial.values,
        params=dict(params),
        distributions=dict(distributions),
        user_attrs={**trial.user_attrs, **(more or {})},
        intermediate_values=trial.intermediate_values,
    )
    copied.datetime_start, copied.datetime_complete = trial.datetime_start, trial.datetime_complete
    return copied


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


def study_name(models: Sequence[str], job: str) -> str:
    """Return the name of a job's study: its first model, without folders, how many more there are, and the job.

    >>> study_name(["zoo:squeezenet"], "1a2b3c"), study_name(["models/net.onnx", "zoo:mlp"], "1a2b3c")
    ('squeezenet 1a2b3c', 'net and 1 more 1a2b3c')
    """
    first = Path(models[0].removeprefix("zoo:")).name.removesuffix(".onnx")
    more = f" and {len(models) - 1} more" if len(models) > 1 else ""
    return f"{first}{more} {job}"


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
