"""Weights of a graph, which are constants of its compiled code, and whether a call still has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter, is_, methodcaller
from typing import Any

from autotune.pytorch.tensors import digest_of

_VERSION, _ADDRESS = attrgetter("_version"), methodcaller("data_ptr")


@dataclass(frozen=True, eq=False)
class RecordedWeights:
    """Tensors that were compiled as constants: the arguments ``places``, and behind them what the graph itself holds.

    PyTorch's counters of writes, ``versions``, miss those through ``.data``, through ``.detach().numpy()`` and by
    assigning to ``.data``: the addresses and hashes of the bytes are compared too. ``digests`` is None where the caller
    promised that nothing writes like that (the option ``weights="fixed"``). Tensors of inference mode are not
    ``counted``.
    """

    places: tuple[int, ...]
    tensors: tuple[Any, ...]
    counted: tuple[Any, ...]
    versions: Sequence[int]
    addresses: Sequence[int]
    digests: Sequence[int] | None

    @classmethod
    def of(cls, arguments: Mapping[int, Any], captured: Sequence[Any], hashed: bool) -> RecordedWeights:
        """Record some arguments of a call and what the graph holds as they are now."""
        tensors = (*arguments.values(), *captured)
        counted = tuple(each for each in tensors if not each.is_inference())
        digests = [*map(digest_of, tensors)] if hashed else None
        versions, addresses = [*map(_VERSION, counted)], [*map(_ADDRESS, tensors)]
        return cls(tuple(arguments), tensors, counted, versions, addresses, digests)

    def holds(self, arguments: Sequence[Any]) -> bool:
        """Return whether a call gives those tensors, at those addresses, with those bytes.

        One kind of check goes over all tensors before the next: of a model of hundreds of them, each call is waiting.
        """
        given = [arguments[place] for place in self.places]
        return (
            all(map(is_, given, self.tensors))
            and [*map(_VERSION, self.counted)] == self.versions
            and [*map(_ADDRESS, self.tensors)] == self.addresses
            and (self.digests is None or [*map(digest_of, self.tensors)] == self.digests)
        )


__all__ = ["RecordedWeights"]
