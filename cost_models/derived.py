"""Features of measured configurations, for which the loop nests of a space are worked out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import AutotuneError
from autotune.schedule.knob import Config
from cost_models import features


class NotDerived(AutotuneError):
    """No features can be derived of a workload's configurations; the message says why."""


@dataclass(frozen=True)
class Derived:
    """``n`` configurations of one space: ``configs`` are their digests [n], ``x`` their features [n, F] and ``encoded``
    the values of the ``knobs`` [n, K]; of those that are not ``legal`` [n] both are zeros.

    ``workload`` and ``target`` are keys.
    """

    workload: str
    target: str
    family: str
    knobs: tuple[str, ...]
    configs: NDArray[np.bytes_]
    legal: NDArray[np.bool_]
    x: features.Matrix
    encoded: features.Matrix

    def __len__(self) -> int:
        return len(self.configs)

    def take(self, rows: NDArray[Any] | Sequence[int]) -> Derived:
        """Return the given rows, in that order."""
        return replace(self, **{name: getattr(self, name)[rows] for name in ROWS})

    def joined(self, more: Derived) -> Derived:
        """Return it joined with further configurations of the same space."""
        parts: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(more, name)]) for name in ROWS
        }
        return replace(self, **parts)

    def knobs_as(self, names: Sequence[str]) -> features.Matrix:
        """Return the values of the knobs called ``names`` [n, len(names)]; NaN where the space has no such knob."""
        found = np.full((len(self), len(names)), np.nan, np.float32)
        for position, knob in enumerate(self.knobs):
            if knob in names:
                found[:, names.index(knob)] = self.encoded[:, position]
        return found


ROWS = ("configs", "legal", "x", "encoded")
FACTS = tuple(field.name for field in fields(Derived) if field.name not in ROWS)


def digest(config: Config) -> bytes:
    """Return the digest that tells a configuration from others of its space."""
    return hashlib.blake2b(repr(sorted(config.items())).encode(), digest_size=12).hexdigest().encode()


def derive(workload: str, target: str, space_key: str, configs: Sequence[Config]) -> Derived:
    """Return the work them out, from the canonical texts of workload and target.

    Raises NotDerived where these cannot be read, or the space is not that of ``space_key`` any more.
    """
    from autotune.graph.program import ProgramWorkload, parse_workload
    from autotune.target import Target
    from search_spaces.spaces import space_for

    try:
        parsed = parse_workload(workload)
        if isinstance(parsed, ProgramWorkload):
            raise NotDerived("a user's program")
        space = space_for(parsed, Target.from_json(target))
    except NotDerived:
        raise
    except AutotuneError as error:
        raise NotDerived("unreadable workload or target") from error
    if space.key != space_key:
        raise NotDerived("space has changed")
    population, legal = space.legal_among(configs)
    x = np.zeros((len(configs), len(features.names())), np.float32)
    encoded = np.zeros((len(configs), len(space.names)), np.float32)
    if legal.any():
        x[legal] = features.extract(space, population)
        encoded[legal] = population.encoded(space.names)
    return Derived(
        space.workload.key,
        space.target.key,
        space.family,
        space.names,
        np.asarray([digest(config) for config in configs], dtype=np.bytes_),
        legal,
        x,
        encoded,
    )


__all__ = ["FACTS", "ROWS", "Derived", "NotDerived", "derive", "digest"]
