"""PyTorch for the benchmark worker; needs NumPy and PyTorch only, and is loaded by its file name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, Any]


class PyTorch:
    """PyTorch eager (oneDNN) over the recipe of a model; images lie channels last.

    ``constants`` reads those of a recipe's folder.
    """

    module = "torch"

    def __init__(self, constants: Callable[[Path], Arrays]) -> None:
        self._constants = constants

    def load(self, model: str, inputs: Arrays, threads: int) -> Callable[[], None]:
        import torch

        torch.set_num_threads(threads)
        recipe = json.loads((Path(model) / "recipe.json").read_text())
        values = {name: self._tensor(torch, array) for name, array in inputs.items()}
        for name, array in self._constants(Path(model)).items():
            values[name] = torch.from_numpy(array) if array.dtype == np.int64 else self._tensor(torch, array)
        steps = [_torch_step(torch, node) for node in recipe["nodes"]]
        self._names, self._values = recipe["outputs"], values

        def run() -> None:
            with torch.inference_mode():
                for step in steps:
                    step(values)

        return run

    @staticmethod
    def _tensor(torch: Any, array: Any) -> Any:
        tensor = torch.from_numpy(array)
        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        return tensor.contiguous(memory_format=formats.get(tensor.ndim, torch.contiguous_format))

    def outputs(self) -> list[Any]:
        return [np.ascontiguousarray(self._values[name].numpy()) for name in self._names]


def _torch_step(torch: Any, node: Mapping[str, Any]) -> Callable[[Arrays], None]:
    """One node of a recipe as a function that reads and writes named tensors."""
    op, inputs, attrs = node["op"], node["inputs"], node["attrs"]
    functional = torch.nn.functional
    if op in ("Conv", "ConvTranspose"):
        rank = len(attrs["kernel_shape"])
        name = f"conv{'_transpose' if op == 'ConvTranspose' else ''}{rank}d"
        convolve, window = getattr(functional, name), _torch_window(attrs, rank)

        def apply(*x: Any) -> Any:
            return convolve(*x, **window)
    else:
        apply = _torch_function(torch, op, attrs)
    (output,) = node["outputs"]

    def step(values: Arrays) -> None:
        values[output] = apply(*(values[name] for name in inputs))

    return step


def _torch_window(attrs: Mapping[str, Any], rank: int) -> dict[str, Any]:
    pads = attrs.get("pads", [0] * 2 * rank)
    if pads[:rank] != pads[rank:]:
        raise ValueError(f"torch has no asymmetric padding {pads}")
    return {
        "stride": attrs.get("strides", [1] * rank),
        "padding": pads[:rank],
        "dilation": attrs.get("dilations", [1] * rank),
        "groups": attrs.get("group", 1),
    }


def _torch_function(torch: Any, op: str, attrs: Mapping[str, Any]) -> Callable[..., Any]:
    functional = torch.nn.functional
    table: dict[str, Callable[..., Any]] = {
        "Add": torch.add,
        "Mul": torch.mul,
        "MatMul": torch.matmul,
        "Relu": torch.relu,
        "Sigmoid": torch.sigmoid,
        "Transpose": lambda x: x.permute(attrs["perm"]).contiguous(),
        "Reshape": lambda x, shape: x.reshape(tuple(shape.tolist())),
        "Softmax": lambda x: torch.softmax(x, attrs.get("axis", -1)),
        "ReduceL2": lambda x: torch.linalg.vector_norm(x, dim=attrs["axes"]),
        "BatchNormalization": lambda x, s, b, m, v: functional.batch_norm(x, m, v, s, b),
        "Concat": lambda *x: torch.cat(x, attrs["axis"]),
        "Gather": lambda x, i: torch.index_select(x, attrs.get("axis", 0), i),
        "MaxPool": lambda x: functional.max_pool2d(x, attrs["kernel_shape"], attrs["strides"]),
        "AveragePool": lambda x: functional.avg_pool2d(x, attrs["kernel_shape"], attrs["strides"]),
    }
    if op not in table:
        raise ValueError(f"no PyTorch function for {op}")
    return table[op]


__all__ = ["PyTorch"]
