"""The little that the learned models share: training, prediction and files of an XGBoost booster.

XGBoost is imported when a model is trained or read, never before: it costs half a second.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autotune.errors import CostModelError
from cost_models import features

Scores = NDArray[np.float32]
Loss: TypeAlias = Callable[[NDArray[Any], Any], tuple[NDArray[np.float64], NDArray[np.float64]]]
"""Scores [n] and data to the slope and the curvature of the loss [n]."""


def train(
    parameters: Mapping[str, object],
    rounds: int,
    x: features.Matrix,
    y: NDArray[np.floating[Any]],
    *,
    groups: NDArray[np.integer[Any]] | None = None,
    margin: Scores | None = None,
    weights: NDArray[np.floating[Any]] | None = None,
    loss: Loss | None = None,
) -> Any:
    """Train a booster on rows ``x``.

    ``groups`` (sorted) makes it a ranker, ``margin`` is where it starts, ``weights`` say how much each row counts, and
    ``loss`` takes the place of XGBoost's own objectives.
    """
    import xgboost

    data = xgboost.DMatrix(x, label=y, feature_names=_columns(x), qid=groups, weight=weights)
    if margin is not None:
        data.set_base_margin(margin)
    return xgboost.train(dict(parameters), data, num_boost_round=rounds, obj=loss)


def _columns(x: features.Matrix) -> list[str] | None:
    """Return the names of the features, unless the rows are of something else."""
    names = list(features.names())
    return names if x.shape[1] == len(names) else None


def predict(booster: Any, x: features.Matrix, threads: int, margin: Scores | None = None) -> Scores:
    """Return scores float32 [n], before any objective's transformation, in one pass over ``x``, without
    building a DMatrix."""
    if x.ndim != 2 or x.shape[1] != len(features.names()):
        raise CostModelError(f"features of shape {x.shape}; this model reads [n, {len(features.names())}]")
    booster.set_param({"nthread": threads})
    found = booster.inplace_predict(x, predict_type="margin", validate_features=False, base_margin=margin)
    return np.asarray(found, dtype=np.float32)


def save(booster: Any, path: Path) -> str:
    """Write XGBoost's own binary JSON and return its SHA-256 (hex)."""
    raw = bytes(booster.save_raw("ubj"))
    path.write_bytes(raw)
    return hashlib.sha256(raw).hexdigest()


def load(path: Path, digest: str) -> Any:
    """Read a booster whose SHA-256 must be ``digest``; raises CostModelError for a damaged file."""
    import xgboost

    try:
        raw = path.read_bytes()
    except OSError as error:
        raise CostModelError(f"cannot read the cost model {path}: {error}") from error
    found = hashlib.sha256(raw).hexdigest()
    if found != digest:
        raise CostModelError(
            f"cost model {path} is damaged: SHA-256 {found}, its manifest says {digest}; "
            "roll back to an earlier version or retrain"
        )
    booster = xgboost.Booster()
    try:
        booster.load_model(bytearray(raw))
    except xgboost.core.XGBoostError as error:
        raise CostModelError(f"XGBoost cannot read {path}: {error}") from error
    return booster


__all__ = ["Loss", "Scores", "load", "predict", "save", "train"]
