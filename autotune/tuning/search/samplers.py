"""Samplers of a search: ours, one of Optuna's by name, or a user's own."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from optuna.samplers import BaseSampler
from optuna.study import Study, StudyDirection

from autotune.distribution import install
from autotune.errors import MissingExtraError, UsageError
from autotune.extensions import SAMPLERS as EXTENSIONS
from autotune.extensions import extension, installed
from autotune.suggest import did_you_mean
from autotune.tuning.search.legal import UniformSampler
from autotune.tuning.search.sampler import GUIDED, GuidedSampler, Scorer
from autotune.tuning.search.study import SamplerFactory

if TYPE_CHECKING:
    from search_spaces.space import Space

SamplerLike: TypeAlias = str | BaseSampler | Study | Callable[..., BaseSampler]
"""A name; a sampler, of which every search gets a copy; what makes a sampler, of a ``seed`` or of nothing; or a
study, whose sampler and pruner are used, and which gets the trials."""


def factory(sampler: SamplerLike, scorer: Scorer, batch: int, objectives: int = 1) -> SamplerFactory:
    """Return a function that makes the sampler of each search.

    Raises UsageError for an unknown name, for a study that does not minimise one value, and with several ``objectives``
    for a study and for a sampler of one value.
    """
    if objectives > 1 and (isinstance(sampler, Study) or sampler in SINGLE):
        raise UsageError(
            f"{name_of(sampler)} minimises one value, the latency; for another objective take guided, tpe or nsga2"
        )
    if isinstance(sampler, Study):
        if sampler.directions != [StudyDirection.MINIMIZE]:
            raise UsageError(f"the study {sampler.study_name!r} must minimise one value, the latency")
        return lambda space, seed: _copied(sampler.sampler)
    if isinstance(sampler, BaseSampler):
        return lambda space, seed: _copied(sampler)
    if callable(sampler):
        return lambda space, seed: _made(sampler, seed)
    if sampler == GUIDED:
        return lambda space, seed: GuidedSampler(space, scorer, seed, batch)
    if (
        isinstance(sampler, str)
        and sampler not in SAMPLERS
        and (own := extension(EXTENSIONS, sampler)) is not None
    ):
        return lambda space, seed: _made(own, seed)
    names = [GUIDED, *SAMPLERS, *installed(EXTENSIONS)]
    if not isinstance(sampler, str) or sampler not in names:
        near = did_you_mean(sampler, names) if isinstance(sampler, str) else ", or one of Optuna's objects"
        raise UsageError(f"unknown sampler {sampler!r}; known samplers: {', '.join(names)}{near}")
    _require(sampler)
    return SAMPLERS[sampler]


def name_of(sampler: SamplerLike) -> str:
    """Return the name that a job is known by: searches by different samplers are different jobs."""
    if isinstance(sampler, str):
        return sampler
    if isinstance(sampler, Study):
        return f"{type(sampler.sampler).__name__} of study {sampler.study_name}"
    if isinstance(sampler, BaseSampler):
        return type(sampler).__name__
    return getattr(sampler, "__qualname__", type(sampler).__name__)


def _copied(sampler: BaseSampler) -> BaseSampler:
    """Return a copy: samplers keep what they know of a study, and there is one study a workload."""
    try:
        return copy.deepcopy(sampler)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"the sampler {type(sampler).__name__} cannot be copied ({error}), and every workload needs its own: "
            "give a function that makes it, such as sampler=lambda seed: MySampler(seed)"
        ) from error


def _made(make: Callable[..., BaseSampler], seed: int) -> BaseSampler:
    """Return the result of a user's function or class; it gets the seed if it takes one."""
    try:
        takes = inspect.signature(make).parameters
    except (TypeError, ValueError):
        takes = {}  # type: ignore[assignment]  # a builtin without a signature
    required = [p for p in takes.values() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    made = make(seed=seed) if "seed" in takes else make(seed) if required else make()
    if not isinstance(made, BaseSampler):
        raise UsageError(f"{name_of(make)} made a {type(made).__name__}, which is no Optuna sampler")
    return made


NEEDS = {"cmaes": "cmaes", "gp": "torch"}
"""The package that a sampler imports; the extra has the sampler's name."""


def _require(name: str) -> None:
    import importlib.util

    package = NEEDS.get(name)
    if package is not None and importlib.util.find_spec(package) is None:
        raise MissingExtraError(f"the sampler {name!r} needs {package}: {install(name)}")


def _optuna(name: str, **options: Any) -> SamplerFactory:
    def make(space: Space, seed: int) -> BaseSampler:
        import optuna

        kind: Callable[..., BaseSampler] = getattr(optuna.samplers, name)
        with warnings.catch_warnings():  # each sampler was asked for by name, experimental or not
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return kind(seed=seed, **options)

    return make


SAMPLERS: dict[str, SamplerFactory] = {
    "tpe": _optuna("TPESampler", multivariate=True),
    "random": UniformSampler,
    "cmaes": _optuna("CmaEsSampler", warn_independent_sampling=False),
    "gp": _optuna("GPSampler", warn_independent_sampling=False),
    "nsga2": _optuna("NSGAIISampler", population_size=16),  # a workload seldom gets many hundred trials
    "qmc": _optuna("QMCSampler", warn_independent_sampling=False, warn_asynchronous_seeding=False),
    "grid": UniformSampler,  # it proposes each legal candidate once: no grid of points is needed for that
}
"""Samplers by the name used on the command line."""

SINGLE = ("cmaes",)
"""Those that cannot search a Pareto front."""

__all__ = ["GUIDED", "NEEDS", "SAMPLERS", "SamplerLike", "factory", "name_of"]
