"""Outputs of which a part is there: how long that is, another output says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from autotune.foreign import parse_json

KEY = "counted_outputs"
"""The key of those outputs in an image's metadata."""


class CountedOutput(NamedTuple):
    """Output number ``output`` has as many elements along ``axis`` as the one element of output ``length`` says."""

    output: int
    axis: int
    length: int


def to_metadata(counted: Iterable[CountedOutput]) -> dict[str, str]:
    """Return an image's metadata about them; nothing where there are none."""
    listed = [list(each) for each in counted]
    return {KEY: json.dumps(listed)} if listed else {}


def from_metadata(metadata: Mapping[str, str]) -> tuple[CountedOutput, ...]:
    """Return the outputs that an image's metadata names."""
    return tuple(CountedOutput(*map(int, each)) for each in parse_json(metadata.get(KEY, "[]")))


def parts(outputs: Sequence[NDArray[Any]], counted: Iterable[CountedOutput]) -> list[NDArray[Any]]:
    """Return the outputs, each as long as it is: views of the arrays that have room for all there could be."""
    found = list(outputs)
    for number, axis, length in counted:
        there = int(outputs[length][0])
        found[number] = found[number][(slice(None),) * axis + (slice(0, there),)]
    return found


__all__ = ["KEY", "CountedOutput", "from_metadata", "parts", "to_metadata"]
