"""Exports one architecture: run as a process of its own, which PyTorch is loaded into.

Arguments: the architecture, the exporter and a folder, which has ``model.onnx`` and the inputs as ``N.npy``, in the
order of the model's inputs, afterwards.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from results.bench.held_out.architectures import ARCHITECTURES, WRITTEN, Architecture

if TYPE_CHECKING:
    import torch
    from torch import nn

_OPSETS = {"dynamo": 18, "torchscript": 17}
_LIBRARIES: list[Any] = []


def build(architecture: Architecture) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The model with random weights, the same in every process, and its inputs."""
    import torch

    torch.manual_seed(0)
    _import_torchvision()
    model, inputs = _made(architecture)
    _vary(model)
    settle(model.eval(), inputs)
    return model, inputs


def _made(architecture: Architecture) -> tuple[Any, Any]:
    module, _, function = architecture.builder.partition(":")
    make = getattr(importlib.import_module(f"results.bench.held_out.{module}"), function)
    found: tuple[Any, Any] = make(*architecture.arguments)
    return found


def _import_torchvision() -> None:
    """One that is built for CUDA beside a PyTorch without it has no operators of its own, and cannot be imported, nor
    can what imports it. No model here ends in one of them: that they are declared is enough."""
    import torch

    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        importlib.import_module("torchvision")
        _LIBRARIES.append(library)  # what it declares ends with it


def _vary(model: nn.Module) -> None:
    """Move what is initialised to one number: scales that start at zero would hide what stands before them."""
    import torch

    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.numel() > 1 and float(parameter.std()) == 0.0:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)


def settle(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    """Give batch norms the statistics of these inputs, as training does.

    With any others values grow from layer to layer until float32 itself, summed in another order, gives other answers.
    """
    import torch
    from torch.nn.modules.batchnorm import _BatchNorm

    def take(layer: Any, arguments: tuple[Any, ...]) -> None:
        (values,) = arguments
        around = [axis for axis in range(values.ndim) if axis != 1]
        layer.running_mean.copy_(values.mean(around))
        layer.running_var.copy_(values.var(around, correction=0).clamp(min=1e-2))

    layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]
    hooks = [layer.register_forward_pre_hook(take) for layer in layers]
    with torch.no_grad():
        model(*inputs)
    for hook in hooks:
        hook.remove()


def export(architecture: Architecture, exporter: str, folder: Path) -> None:
    """Write the model and its inputs; raises whatever PyTorch's exporter does."""
    import torch

    model, inputs = build(architecture)
    names = [f"input_{index}" for index in range(len(inputs))]
    path = folder / "model.onnx"
    options: dict[str, Any] = {"input_names": names, "opset_version": _OPSETS[exporter]}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model, inputs, str(path), dynamo=exporter == "dynamo", external_data=False, **options
        )
    for index, tensor in enumerate(inputs):
        np.save(folder / f"{index}.npy", tensor.numpy())


def write(architecture: Architecture, folder: Path) -> None:
    """Write a model that is no module of PyTorch, and its inputs by their names."""
    import onnx

    model, inputs = _made(architecture)
    onnx.save(model, folder / "model.onnx")
    for name, array in inputs.items():
        np.save(folder / f"{name}.npy", array)


def main() -> None:
    """Export what the arguments name."""
    name, exporter, folder = sys.argv[1:]
    found = next(each for each in ARCHITECTURES if each.name == name)
    if exporter == WRITTEN:
        write(found, Path(folder))
    else:
        export(found, exporter, Path(folder))


if __name__ == "__main__":
    main()

__all__ = ["build", "export", "settle", "write"]
