"""Made-up measured runs: latencies from a hidden cost that the features can explain."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd

from cost_models import dataset, features
from cost_models.dataset import COLUMNS
from search_spaces.space import Space
from search_spaces.spaces import space_for
from tests.search_spaces import workloads as make

COUNT = 24


@cache
def spaces(count: int = COUNT) -> tuple[Space, ...]:
    """Contractions of different shapes on one target."""
    sizes = [(16 + 8 * i, 32 + 8 * (i % 3), 48 + 16 * (i % 4)) for i in range(count)]
    return tuple(space_for(make.matmul(*size), make.AVX2) for size in sizes)


def hidden_latency(space: Space, x: features.Matrix) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Nanoseconds [n] that disagree with the analytic model: tiles of six rows and two vectors are good."""
    columns = {name: x[:, i].astype(np.float64) for i, name in enumerate(features.names())}
    slow = 2.0 + np.abs(columns["tag_rows"] - 6) / 3
    slow += 0.3 * (columns["tag_vectors"] - 2) ** 2
    return np.asarray(float(space.workload.flops) * slow)


@cache
def _drawn(number: int, count: int) -> tuple[tuple[dict[str, object], ...], tuple[float, ...]]:
    space = spaces()[number]
    population = space.population(np.random.default_rng(number), count)
    return tuple(population), tuple(hidden_latency(space, features.extract(space, population)))


def records(per_space: int = 40, failing: bool = True, count: int = COUNT) -> pd.DataFrame:
    """Runs of the first synthetic spaces; where ``failing``, tiles of one row crash."""
    found = []
    for number, space in enumerate(spaces()[:count]):
        for config, nanoseconds in zip(*_drawn(number, per_space), strict=True):
            crashes = failing and config["rows"] == 1
            latency = np.nan if crashes else nanoseconds
            found.append(
                {
                    "workload_text": space.workload.text,
                    "target_json": space.target.to_json(),
                    "space_key": space.key,
                    "config": config,
                    "outcome": "crashed" if crashes else "ok",
                    "latency_ns": latency,
                    "ratio": latency / space.workload.flops,
                    "noise": 0.05,
                    "model": f"model{number % 3}",
                    "created": 1.7e9 + number,
                }
            )
    return pd.DataFrame(found, columns=[*COLUMNS])


@cache
def measured() -> dataset.Dataset:
    """The same as rows."""
    return dataset.build(records())
