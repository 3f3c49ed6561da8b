"""Models of PyTorch: the backend of ``torch.compile``, and tensors as arrays without copies."""

from __future__ import annotations

from autotune.pytorch.backend import backend, report
from autotune.pytorch.subgraph import Subgraph

__all__ = ["Subgraph", "backend", "report"]
