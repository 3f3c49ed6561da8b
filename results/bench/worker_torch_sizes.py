"""A benchmark worker of models of PyTorch at twelve sizes each: eager, by torch.compile with inductor, and with us."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from autotune.bench.worker import main
from results.bench.worker_torch_compile import WAYS, Arrays

LENGTHS = (7, 12, 16, 20, 33, 48, 50, 64, 77, 96, 100, 128)
BATCHES = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 16)
SIDES = (96, 128, 160, 192, 224, 256, 288, 320, 352, 144, 208, 272)
SMALL_SIDES = (16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 64)


class SizedModel:
    """A model at each of its sizes in turn; one run is a call of each size."""

    module = "torch"

    def __init__(self, way: str) -> None:
        self._way = way
        self._out: list[Any] = []

    def load(self, model: str, inputs: Arrays, threads: int) -> Callable[[], None]:
        import torch

        from results.bench.held_out.sized import SIZED

        torch.set_num_threads(threads)
        net, requests = SIZED[model]()
        function = self._compiled(torch, net)

        def run() -> None:
            with torch.inference_mode():
                self._out = [function(*request) for request in requests]

        run()
        run()  # the first call of a size may be answered by PyTorch
        if self._way == "autotune":
            self._programs = _checked_programs()
        return run

    def _compiled(self, torch: Any, net: Any) -> Callable[..., Any]:
        from autotune.pytorch import backend

        if self._way == "eager":
            plain: Callable[..., Any] = net
            return plain
        if self._way == "inductor":
            from torch._inductor import config

            config.freezing = True
            found: Callable[..., Any] = torch.compile(net, backend="inductor", dynamic=True)
            return found
        ours: Callable[..., Any] = torch.compile(
            net, backend=backend, dynamic=True, options={"weights": "fixed"}
        )
        return ours

    def outputs(self) -> list[Any]:
        """All tensors of all sizes, in order; behind them the number of programs."""
        import numpy as np

        flat = [each for out in self._out for each in (out if isinstance(out, (tuple, list)) else (out,))]
        return [
            *(each.float().contiguous().numpy() for each in flat),
            np.array(getattr(self, "_programs", 0)),
        ]


def _checked_programs() -> int:
    """Return the number of programs; raise where a graph was left to PyTorch, or a bucket compiled twice."""
    from autotune.pytorch import report

    left = [graph.reason for graph in report() if graph.reason]
    if left or not report():
        raise RuntimeError(f"{len(left)} of {len(report())} graphs were left to PyTorch: {left[:1]}")
    for graph in report():
        buckets = [(tuple(each.buckets.items()), each.numbers) for each in graph.programs]
        if graph.made != len(graph.programs) or len(set(map(str, buckets))) != len(buckets):
            raise RuntimeError(f"graph {graph.number} was compiled {graph.made} times for {buckets}")
    return sum(len(graph.programs) for graph in report())


if __name__ == "__main__":
    main({way: partial(SizedModel, way) for way in WAYS})

__all__ = ["BATCHES", "LENGTHS", "SIDES", "SMALL_SIDES", "SizedModel"]
