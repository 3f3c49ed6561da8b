"""The studies of a job: kept, filled once, and stopped and pruned as Optuna's pages say."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from autotune.database import Database
from autotune.errors import StudyError, UsageError
from autotune.tuning.jobs.job import Options
from autotune.tuning.search.studies import Studies, opened_storage
from tests.tuning.test_job import A, B, job

optuna.logging.set_verbosity(optuna.logging.WARNING)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tuning.db"


def journals(path: Path) -> list[Path]:
    return sorted(Path(f"{path}.studies").glob("*.log"))


def studies_in(journal: Path) -> dict[str, optuna.Study]:
    """The studies of a journal as optuna-dashboard reads it: by Optuna's own backend."""
    storage = JournalStorage(JournalFileBackend(str(journal)))
    names = optuna.get_all_study_names(storage)
    return {name: optuna.load_study(study_name=name, storage=storage) for name in names}


def test_every_run_of_a_job_is_a_trial_of_its_study(path: Path) -> None:
    job(path, A, B, trials=120).run()
    with Database(path) as database:
        (row,), runs = database.jobs(), database.runs()
    (journal,) = journals(path)
    found = studies_in(journal)
    assert {f"model {row.id}", f"model {row.id}/a0", f"model {row.id}/b0"} <= found.keys()
    everything = found[f"model {row.id}"].trials
    assert len(everything) == len(runs)
    assert {trial.params["layer"] for trial in everything} == {"a0", "b0"}
    assert journal.name == f"model-{row.id}.log"
    for task in (A, B):
        study = found[f"model {row.id}/{task.name}0"]
        mine = runs[runs.layer == f"{task.name}0"]
        assert len(study.trials) == len(mine) == len({trial.user_attrs["trace"] for trial in study.trials})
        assert study.metric_names == ["latency / default"]
        assert study.user_attrs["dispatches"] == [f"{task.name}0"]
        assert study.trials[0].value == 1
        default = task.latency(task.space.default())
        for trial in study.trials:
            assert trial.user_attrs["layer"] == f"{task.name}0"
            assert {*trial.params} == {"rows", "vectors", "unroll", "order"}
            if trial.state == TrialState.COMPLETE:
                assert trial.value == pytest.approx(trial.user_attrs["latency_ns"] / default)
            else:
                assert trial.state == TrialState.FAIL
                assert trial.user_attrs["outcome"] == "wrong_result"
        assert study.best_value <= study.trials[0].value


def test_a_job_that_goes_on_adds_to_its_studies_and_another_has_its_own(path: Path) -> None:
    class Enough(Exception):
        pass

    def stop(study: optuna.Study, trial: FrozenTrial) -> None:
        if len(study.trials) == 12:
            study.stop()

    report = job(path, A, trials=40, options=Options(callbacks=[stop])).run()
    assert report.stopped
    (journal,) = journals(path)
    first = studies_in(journal)[f"model {report.job}"].trials
    again = job(path, A, trials=40).run()
    assert again.job == report.job
    assert journals(path) == [journal]
    trials = studies_in(journal)[f"model {report.job}"].trials
    assert trials[: len(first)] == first
    assert len({json.dumps(trial.params) for trial in trials}) == len(trials) == 40
    other = job(path, A, trials=40, options=Options(seed=1)).run()
    assert other.job != report.job
    assert len(journals(path)) == 2
    assert studies_in(journal)[f"model {report.job}"].trials == trials


def test_callbacks_get_each_trial_and_stop_the_job(path: Path) -> None:
    seen: list[tuple[str, int]] = []

    def callback(study: optuna.Study, trial: FrozenTrial) -> None:
        assert study.trials[-1].number == trial.number
        seen.append((study.study_name, trial.number))
        if len(seen) == 9:
            study.stop()

    report = job(path, A, B, trials=200, options=Options(callbacks=[callback])).run()
    assert report.stopped
    assert 9 <= report.trials < 60
    assert {name for name, _ in seen} == {f"model {report.job}/a0", f"model {report.job}/b0"}


def test_what_a_callback_raises_comes_out_and_nothing_is_lost(path: Path) -> None:
    def callback(study: optuna.Study, trial: FrozenTrial) -> None:
        if trial.number == 10:
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        job(path, A, options=Options(callbacks=[callback])).run()
    with Database(path) as database:
        known = len(database.runs())
    assert known >= 10
    assert job(path, A).run().trials == 40


class Never(optuna.pruners.BasePruner):  # type: ignore[misc]  # Optuna is read without its types
    """Give up everything that is slower in isolation than the fastest so far."""

    def __init__(self) -> None:
        self.asked = 0

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        self.asked += 1
        before = [t.intermediate_values[0] for t in study.trials if 0 in t.intermediate_values]
        return bool(trial.intermediate_values[0] > min(before))


def test_a_pruner_spares_candidates_the_measurement_in_the_model(path: Path) -> None:
    job(path, A, trials=40, options=Options(pruner=Never())).run()
    (journal,) = journals(path)
    (study,) = (study for name, study in studies_in(journal).items() if not name.endswith("/plans"))
    states = [trial.state for trial in study.trials]
    pruned = [trial for trial in study.trials if trial.state == TrialState.PRUNED]
    assert states[0] == TrialState.COMPLETE
    assert len(pruned) > 10
    assert all("in_model_ratio" not in trial.user_attrs for trial in pruned)
    assert all(trial.value == trial.intermediate_values[0] for trial in pruned)
    complete = [trial for trial in study.trials[1:] if trial.state == TrialState.COMPLETE]
    assert complete
    assert all("in_model_ratio" in trial.user_attrs for trial in complete)


class Counting(optuna.samplers.RandomSampler):  # type: ignore[misc]  # Optuna is read without its types
    """A user's own sampler."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed=seed)


@pytest.mark.parametrize("tasks", [(A,), (A, B)], ids=len)
def test_a_study_that_is_given_gets_all_trials(path: Path, tasks: Any) -> None:
    pruner = Never()
    study = optuna.create_study(study_name="mine", sampler=Counting(3), pruner=pruner)
    called: list[int] = []

    def callback(given: optuna.Study, trial: FrozenTrial) -> None:
        assert given is study
        called.append(trial.number)

    report = job(path, *tasks, trials=30, options=Options(sampler=study, callbacks=[callback])).run()
    assert len(study.trials) == report.trials == 30
    assert called == [*range(30)]
    assert pruner.asked > 0
    expected = {"rows", "vectors", "unroll", "order"}
    if len(tasks) > 1:
        expected = {f"{layer} {name}" for layer in ("a0", "b0") for name in expected} | {"layer"}
    assert {name for trial in study.trials for name in trial.params} == expected
    study.add_trial(study.trials[0])  # it is the user's own, and stays one


def test_a_study_that_is_given_can_be_stopped(path: Path) -> None:
    study = optuna.create_study(sampler=Counting(3))

    def callback(given: optuna.Study, trial: FrozenTrial) -> None:
        study.stop()

    assert job(path, A, options=Options(sampler=study, callbacks=[callback])).run().stopped
    with pytest.raises(RuntimeError, match="is supposed to be invoked inside"):
        study.stop()


def test_a_sampler_that_has_proposed_everything_ends_its_search(path: Path) -> None:
    grid = {"rows": [1, 2], "vectors": [3], "unroll": [1], "order": ["mn", "nm"]}
    report = job(path, A, options=Options(sampler=optuna.samplers.GridSampler(grid, seed=0))).run()
    assert 4 <= report.trials < 40
    assert not report.stopped


def test_a_storage_of_ones_own(path: Path, tmp_path: Path) -> None:
    url, journal = f"sqlite:///{tmp_path / 'mine.db'}", tmp_path / "sub" / "mine.log"
    memory = optuna.storages.InMemoryStorage()
    for seed, where in enumerate((url, journal, memory)):
        report = job(path, A, trials=12, options=Options(study_storage=where, seed=seed)).run()
        storage = JournalStorage(JournalFileBackend(str(where))) if where == journal else where
        assert len(optuna.load_study(study_name=f"model {report.job}", storage=storage).trials) == 12
    assert journals(path) == []


def test_what_cannot_be_a_storage_is_one_clear_error(path: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "broken.log").write_text("not a journal\nat all\n")
    for where in (
        tmp_path / "file" / "x.log",
        "what://ever",
        "sqlite:////proc/no.db",
        tmp_path / "broken.log",
    ):
        with pytest.raises(
            StudyError, match=r"cannot (open|write) the studies in .*\n  every measured run is in"
        ):
            job(path, A, options=Options(study_storage=where)).run()


def test_a_full_disk_is_one_clear_error_and_leaves_a_journal_that_goes_on(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [6000]
    journal = tmp_path / "small.log"
    opened = Path.open

    def small(self: Path, mode: str = "r", *rest: Any, **options: Any) -> Any:
        file = opened(self, mode, *rest, **options)
        if self != journal or mode != "ab":
            return file
        write = file.write

        class Small:
            def __enter__(self) -> Small:
                return self

            def __exit__(self, *error: object) -> None:
                file.close()

            def tell(self) -> int:
                return int(file.tell())

            def write(self, data: bytes) -> int:
                if not left[0]:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                part = data[: left[0]]
                left[0] -= len(part)
                return int(write(part))

        return Small()

    monkeypatch.setattr(Path, "open", small)
    with pytest.raises(StudyError, match=r"cannot write the studies in .*small.log: No space left on device"):
        job(path, A, options=Options(study_storage=journal)).run()
    assert journal.read_text().endswith("}\n")
    monkeypatch.undo()
    before = len(Database(path).runs())
    assert before > 0
    report = job(path, A, options=Options(study_storage=journal)).run()
    assert report.trials == 40
    study = studies_in(journal)[f"model {report.job}"]
    assert len(study.trials) == 40


def test_a_process_killed_in_the_middle_of_an_entry_loses_nothing(tmp_path: Path) -> None:
    journal = tmp_path / "x.log"
    studies = Studies(journal, "one", ["a"], ["latency"])
    record = studies.record("a", {})
    trials = [
        optuna.trial.create_trial(
            params={"x": x}, distributions={"x": optuna.distributions.IntDistribution(0, 9)}, value=float(x)
        )
        for x in range(3)
    ]
    for trial in trials:
        record.add(trial)
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-20])
    again = Studies(journal, "one", ["a"], ["latency"]).record("a", {})
    for trial in trials:
        again.add(trial, restored=True)
    assert [trial.params["x"] for trial in studies_in(journal)["one"].trials] == [0, 1, 2]


_WRITER = """
import sys, optuna
from autotune.tuning.search.studies import Studies
record = Studies(sys.argv[1], sys.argv[2], ["a"], ["latency"]).record("a", {})
of = {"x": optuna.distributions.IntDistribution(0, 999)}
for x in range(int(sys.argv[3])):
    record.add(optuna.trial.create_trial(params={"x": x}, distributions=of, value=float(x)))
    print(x, flush=True)
"""


def test_two_jobs_write_one_journal_at_once_and_one_is_killed(tmp_path: Path) -> None:
    journal = tmp_path / "x.log"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(journal), name, count], stdout=subprocess.PIPE, text=True
        )
        for name, count in (("one", "200"), ("two", "999"))
    ]
    one, two = processes
    assert two.stdout is not None
    for line in two.stdout:
        if int(line) == 50:
            two.send_signal(signal.SIGKILL)
            break
    one.communicate()
    two.communicate()
    opened_storage(journal)  # as the next job does: what was cut off is removed
    found = studies_in(journal)
    assert [trial.params["x"] for trial in found["one"].trials] == [*range(200)]
    numbers = [trial.params["x"] for trial in found["two"].trials]
    assert numbers == [*range(len(numbers))]
    assert len(numbers) >= 51


def test_a_study_of_several_values_is_refused(path: Path) -> None:
    study = optuna.create_study(directions=["minimize", "maximize"])
    with pytest.raises(UsageError, match="must minimise one value, the latency"):
        job(path, A, options=replace(Options(), sampler=study)).run()
