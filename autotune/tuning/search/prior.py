"""Cost models that a job begins with: the one in use, another by name, or a user's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from autotune.errors import CostModelError, UsageError
from autotune.extensions import COST_MODELS, extension, installed
from autotune.suggest import listing

if TYPE_CHECKING:
    from autotune.target import Target
    from cost_models.registry import Registry

IN_USE = "current"
"""The model that serves the target: what `autotune models use` chose, else the one built in."""


@runtime_checkable
class PriorModel(Protocol):
    """Whatever ranks the candidates of a workload before any was measured."""

    def predict(self, features: NDArray[np.float32], /) -> NDArray[Any]:
        """Return scores [n], the higher the faster, of rows [n, F] (:func:`cost_models.features.names`)."""


CostModelLike: TypeAlias = str | PriorModel
"""A name (``current``, ``analytic``, ``builtin``, a version, or that of an installed package), or a model itself."""


def prior_for(cost_model: CostModelLike, target: Target, registry: Registry) -> PriorModel | None:
    """Return the model of a job for ``target``; None for the analytic one. Raises UsageError for an unknown one."""
    if not isinstance(cost_model, str):
        return _checked(cost_model, type(cost_model).__name__)
    if cost_model == IN_USE:
        served = registry.serving(target)
        return served.ranker if served else None
    if cost_model == "analytic":
        return None
    if cost_model == "builtin":
        level = registry.defaults.level(target)
        found = registry.defaults.load(level) if level else None
    elif cost_model in registry.versions():
        found = registry.load(cost_model)
    else:
        return _installed(cost_model, registry)
    if found is None:
        raise CostModelError(f"the cost model {cost_model!r} cannot be read, or serves no {target.name}")
    return found.ranker


def _installed(name: str, registry: Registry) -> PriorModel:
    """Return the model of an installed package: an object with ``predict``, or what makes one."""
    found = extension(COST_MODELS, name)
    if found is None:
        known = [IN_USE, "analytic", "builtin", *registry.versions(), *installed(COST_MODELS)]
        raise UsageError(f"no cost model {name!r}; there are: {listing(name, known)}")
    makes = isinstance(found, type) or (callable(found) and not isinstance(found, PriorModel))
    return _checked(found() if makes else found, name)


def _checked(model: Any, name: str) -> PriorModel:
    if not isinstance(model, PriorModel):
        raise UsageError(
            f"the cost model {name} has no method predict: it returns a score for each row of features, the higher the "
            "faster"
        )
    return _Shaped(model, name)


class _Shaped:
    """A user's model whose answers are checked: one finite score a candidate."""

    def __init__(self, model: PriorModel, name: str) -> None:
        self._model, self._name = model, name

    def predict(self, features: NDArray[np.float32], /) -> NDArray[Any]:
        """Return the scores; raises CostModelError for others than one finite number a row."""
        scores = np.asarray(self._model.predict(features), np.float32)
        if scores.shape != (len(features),) or not np.isfinite(scores).all():
            raise CostModelError(
                f"the cost model {self._name} gave scores of shape {scores.shape} for {len(features)} candidates; "
                "it gives one finite number each"
            )
        return scores


__all__ = ["IN_USE", "CostModelLike", "PriorModel", "prior_for"]
