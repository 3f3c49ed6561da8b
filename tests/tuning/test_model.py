"""A model as what its dispatches run in."""

from __future__ import annotations

from pathlib import Path

from autotune.compiler import distinct_workloads, divide
from autotune.compiler.plan import OPTION, option_key, rank
from autotune.database import Comparison, Database, Latency, WorkloadRow
from autotune.passes.preference import Preference
from autotune.target import Target
from autotune.tuning.compare import Version
from autotune.tuning.model import MeasuredModel, work_of
from autotune.tuning.turns import Rounds


def test_a_version_has_the_options_that_it_names_whatever_another_job_decides(tmp_path: Path) -> None:
    target, parts = Target.detect(1), divide("zoo:squeezenet")
    _, sites = work_of(parts, target, Preference())
    site, other = next((s, o) for s in sites for o in s.options if len(o.regions) != len(s.default.regions))
    with Database(tmp_path / "tuning.db") as database:
        database.add_target(target)
        w = site.workload
        database.add_workload(WorkloadRow(w.key, w.text, w.kind, w.flops, w.bytes))
        model = MeasuredModel(parts, sites, target, database, Preference(), 0)
        told = {key: ranking.chosen for key, ranking in model.rankings().items()}
        row = Comparison(other.name, option_key(other, target), Latency(5, 1.0, 1.0, 0.0), won=True)
        database.compared(w.key, target.key, OPTION, [row], "net")
        (profile,) = model.read([Version(told, {})], Rounds(1), lambda: False)
        assert profile is not None
        assert profile.ns.shape == (1, len(profile.dispatches))
        steps = {name for name, _ in profile.dispatches if name.startswith(f"{site.names[0]}/")}
        assert len(steps) == (0 if site.default.steps is None else len(site.default.regions))
        assert model.rankings()[w.key].chosen is other


def test_the_default_of_a_site_is_what_an_untuned_model_uses_whatever_speculative_options_promise() -> None:
    target, parts = Target.parse("x86-64-v4", threads=1), divide("zoo:mobilenetv2")
    _, sites = work_of(parts, target, Preference())
    untuned = rank(distinct_workloads(parts), target, None, Preference())
    several = [site for site in sites if site.workload.key in untuned]
    assert any(option.speculative for site in several for option in site.options)
    assert [site.default for site in several] == [untuned[s.workload.key].chosen for s in several]
