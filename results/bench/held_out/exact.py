"""Runs one architecture in float64: what tells whose float32 is farther off, where two systems are apart.

Run as a module with the name of the architecture and the .npz file to write, which has the outputs in their order.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from autotune.graph.ir import Array
from results.bench.held_out.architectures import ARCHITECTURES, Architecture
from results.bench.held_out.export import build


def outputs(architecture: Architecture) -> list[Array]:
    """The outputs of the model that is exported, on its inputs, with weights and arithmetic of float64."""
    import torch

    model, inputs = build(architecture)
    wide = [tensor.double() if tensor.is_floating_point() else tensor for tensor in inputs]
    with torch.no_grad():
        found: Any = model.double()(*wide)
    return [each.numpy() for each in ([found] if isinstance(found, torch.Tensor) else found)]


def main() -> None:
    """Run what the arguments name."""
    name, path = sys.argv[1:]
    np.savez(path, *outputs(next(each for each in ARCHITECTURES if each.name == name)))


if __name__ == "__main__":
    main()

__all__ = ["outputs"]
