"""Weights of a graph, which are constants of its compiled code, and whether a call still has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autotune.pytorch.tensors import digest_of


@dataclass(frozen=True)
class Weight:
    """A tensor that was compiled as a constant: the argument ``index``, or one that the graph itself holds (None).

    PyTorch's counter of writes, ``version``, misses those through ``.data``, through ``.detach().numpy()`` and by
    assigning to ``.data``: the address and a hash of the bytes are compared too. ``digest`` is None where the caller
    promised that nothing writes like that (the option ``weights="fixed"``).
    """

    index: int | None
    tensor: Any
    version: int
    address: int
    digest: int | None

    @classmethod
    def of(cls, index: int | None, tensor: Any, hashed: bool) -> Weight:
        """Record a tensor as it is now."""
        digest = digest_of(tensor) if hashed else None
        return cls(index, tensor, _version_of(tensor), int(tensor.data_ptr()), digest)

    def holds(self, arguments: Sequence[Any]) -> bool:
        """Return whether a call gives that tensor, at that address, with those bytes."""
        argument = self.tensor if self.index is None else arguments[self.index]
        return (
            argument is self.tensor
            and _version_of(argument) == self.version
            and argument.data_ptr() == self.address
            and (self.digest is None or digest_of(argument) == self.digest)
        )


def _version_of(tensor: Any) -> int:
    """Count the writes that PyTorch knows of; tensors of inference mode have no counter."""
    return 0 if tensor.is_inference() else int(tensor._version)


__all__ = ["Weight"]
