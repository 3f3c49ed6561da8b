"""A benchmark worker of whole models of PyTorch: eager, by torch.compile with inductor, and with us behind it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from autotune.bench.worker import main

Arrays = dict[str, Any]
WAYS = ("eager", "inductor", "autotune")


class CompiledModel:
    """An architecture of :mod:`results.bench.held_out`, by its name, in one of the :data:`WAYS`.

    Inductor searches (``max-autotune``) and takes weights for constants, as we do.
    """

    module = "torch"

    def __init__(self, way: str) -> None:
        self._way = way
        self._out: Any = ()

    def load(self, model: str, inputs: Arrays, threads: int) -> Callable[[], None]:
        import torch

        from results.bench.held_out.architectures import ARCHITECTURES
        from results.bench.held_out.export import build

        torch.set_num_threads(threads)
        net, tensors = build(next(each for each in ARCHITECTURES if each.name == model))
        function = self._compiled(torch, net)

        def run() -> None:
            with torch.inference_mode():
                self._out = function(*tensors)

        run()
        run()  # the first call of ours is answered by PyTorch
        if self._way == "autotune":
            _check_compiled()
        return run

    def _compiled(self, torch: Any, net: Any) -> Callable[..., Any]:
        if self._way == "inductor":
            from torch._inductor import config

            config.freezing = True
            found: Callable[..., Any] = torch.compile(net, backend="inductor", mode="max-autotune")
            return found
        if self._way == "autotune":
            from autotune.pytorch import backend

            ours: Callable[..., Any] = torch.compile(net, backend=backend)
            return ours
        plain: Callable[..., Any] = net
        return plain

    def outputs(self) -> list[Any]:
        """All tensors that the model returned, in order."""
        out = self._out if isinstance(self._out, (tuple, list)) else (self._out,)
        return [tensor.contiguous().numpy() for tensor in out]


def _check_compiled() -> None:
    """Raise what a graph was left to PyTorch for: the row would not be ours."""
    from autotune.pytorch import report

    left = [graph for graph in report() if graph.reason]
    if left:
        raise RuntimeError(f"{len(left)} of {len(report())} graphs were left to PyTorch: {left[0].reason}")


if __name__ == "__main__":
    main({way: partial(CompiledModel, way) for way in WAYS})

__all__ = ["WAYS", "CompiledModel"]
