"""The subjects of a tuning job: models, and the workloads that they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from autotune.passes.options import Option
from autotune.schedule.knob import Config
from autotune.tuning.compare.sites import Site

if TYPE_CHECKING:
    from autotune.compiler.sites.decision import Decision
    from autotune.graph.program import AnyWorkload
    from autotune.graph.region import Workload
    from autotune.tuning.measure.whole_model import WholeModel
    from search_spaces.space import Space


@dataclass(frozen=True)
class Subject:
    """The subject of a search: a workload, the dispatches that have it, and its default schedule."""

    names: tuple[str, ...]
    workload: AnyWorkload
    space: Space
    default: Config
    floor_ns: float = 0.0
    """The latency that no schedule undercuts."""
    expected_ns: float = 0.0
    """The cost model's latency of the default; 0 where there is none."""

    @property
    def site(self) -> Site:
        """The dispatches as a site at which there is nothing to choose."""
        return Site(self.names, self.workload, (Option(cast("Workload", self.workload)),))


@dataclass(frozen=True)
class TunedModel:
    """A model of a job."""

    name: str
    subjects: Sequence[Subject]
    sites: Sequence[Site] = ()
    """Those of the model; without any, each subject is one without options."""
    whole: WholeModel | None = None
    """The model that candidates are compared in; without it nothing is compared."""
    origins: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The model's nodes that each dispatch comes from."""
    decided: Sequence[Decision] = ()
    """Decisions at sites of the whole model, made before its workloads were."""

    @property
    def its_sites(self) -> list[Site]:
        """Return its sites, each with the name of the model."""
        found = self.sites or [subject.site for subject in self.subjects]
        return [replace(site, model=self.name) for site in found]

    @property
    def identity(self) -> list[tuple[str, str, int]]:
        """Return what makes a job of it the same as an earlier one: keys of its workloads and spaces, and how often it
        executes them."""
        return sorted((s.workload.key, s.space.key, len(s.names)) for s in self.subjects)


def subjects_of(models: Sequence[TunedModel]) -> list[Subject]:
    """Return the distinct workloads of models, each with the dispatches of all of them; of several models the names of
    dispatches begin with the model's."""
    if len(models) == 1:
        return list(models[0].subjects)
    found: dict[str, Subject] = {}
    for model in models:
        for subject in model.subjects:
            key = subject.workload.key
            before = found[key].names if key in found else ()
            names = tuple(f"{model.name}:{name}" for name in subject.names)
            found[key] = replace(found.get(key, subject), names=(*before, *names))
    return list(found.values())


__all__ = ["Subject", "TunedModel", "subjects_of"]
