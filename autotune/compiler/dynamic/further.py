"""Models imported at further sizes, until what was seen of each extent fits one expression alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from autotune.compiler.dynamic.case import PaddedGraph
from autotune.compiler.dynamic.observed import Observed
from autotune.compiler.dynamic.padded import padded
from autotune.errors import UndecidedExtentError
from autotune.frontends.onnx.importer import Begun
from autotune.runtime.axes import Axes, Sizes

_MORE = 64
"""Sizes at which a model is imported besides, to tell expressions apart."""


def looked_at(
    observed: Observed,
    further: Sequence[Sizes],
    begin: Callable[[Sizes], Begun],
    inputs: Mapping[str, Axes],
) -> PaddedGraph:
    """Return the graph of a bucket, as :func:`autotune.compiler.dynamic.padded.padded` does; ``begin`` imports the
    model at other sizes of the bucket's symbols, at ``further`` ones in any case.

    Raises PaddingError, UndecidedExtentError where nothing is known of an extent at sizes that would decide it.
    """
    begun = {tuple(sizes.items()): begin(sizes) for sizes in further}
    most = len(begun) + _MORE
    while True:
        try:
            return padded(replace(observed, begun=[(dict(at), its) for at, its in begun.items()]), inputs)
        except UndecidedExtentError as error:
            at = tuple({**observed.sizes, **error.sizes}.items())
            if at in begun or len(begun) == most:
                raise
            begun[at] = begin(dict(at))


__all__ = ["looked_at"]
