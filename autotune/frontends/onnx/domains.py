"""Operators of domains beside ONNX's own: com.microsoft, and classical models of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.frontends.onnx.attention import ATTENTION
from autotune.frontends.onnx.experts import EXPERTS
from autotune.frontends.onnx.foreign import AnyRule
from autotune.frontends.onnx.language import LANGUAGE
from autotune.frontends.onnx.learned import LEARNED
from autotune.frontends.onnx.quantisers import QUANTISED

_MICROSOFT: Mapping[str, AnyRule] = {**QUANTISED, **LANGUAGE, **ATTENTION, **EXPERTS}
_NAMELESS = ("SimplifiedLayerNormalization",)
"""Operators that are written without a domain too."""

DEFINED: Mapping[str, AnyRule] = {
    **{f"com.microsoft.{name}": rule for name, rule in _MICROSOFT.items()},
    **{f"ai.onnx.ml.{name}": rule for name, rule in LEARNED.items()},
    **{name: _MICROSOFT[name] for name in _NAMELESS},
}
"""Operators that have a definition here."""

__all__ = ["DEFINED"]
