"""The passes by name, loaded when asked for: name -> ``module:Class``, one file a pass."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from autotune.errors import UsageError
from autotune.passes.base import GraphPass
from autotune.suggest import listing

PASSES: Mapping[str, str] = {
    "apart": "autotune.passes.apart:Apart",
    "apply_to_parts": "autotune.passes.apply_to_parts:ApplyToParts",
    "attention": "autotune.passes.attention:Attention",
    "attention_blocks": "autotune.passes.attention_blocks:AttentionBlocks",
    "block_sums": "autotune.passes.block_sums:BlockSums",
    "causal_rows": "autotune.passes.causal_rows:CausalRows",
    "common_subexpressions": "autotune.passes.common_subexpressions:CommonSubexpressions",
    "convert_layout": "autotune.passes.convert_layout:ConvertLayout",
    "dead_code": "autotune.passes.dead_code:DeadCode",
    "empty_tensors": "autotune.passes.empty_tensors:EmptyTensors",
    "explicit_bias": "autotune.passes.explicit_bias:ExplicitBias",
    "fold_affine": "autotune.passes.fold_affine:FoldAffine",
    "fold_batch_norm": "autotune.passes.fold_batch_norm:FoldBatchNorm",
    "fold_constants": "autotune.passes.fold_constants:FoldConstants",
    "implicit_gemm": "autotune.passes.implicit_gemm:ImplicitGemm",
    "integer_products": "autotune.passes.integer_products:IntegerProducts",
    "matrix_product": "autotune.passes.matrix_product:MatrixProduct",
    "nest_concats": "autotune.passes.nest_concats:NestConcats",
    "producers_apart": "autotune.passes.producers_apart:ProducersApart",
    "separate_attention": "autotune.passes.separate_attention:SeparateAttention",
    "simplify": "autotune.passes.simplify:Simplify",
    "split_phases": "autotune.passes.split_phases:SplitPhases",
    "split_groups": "autotune.passes.split_groups:SplitGroups",
    "winograd": "autotune.passes.winograd:Winograd",
}


def names() -> tuple[str, ...]:
    """Names of all graph passes."""
    return tuple(PASSES)


def get(name: str) -> type[GraphPass]:
    """The class of a pass.

    Raises:
        UsageError: there is no such pass; the message lists those there are.
    """
    if name not in PASSES:
        raise UsageError(f"no graph pass is called {name!r}\n  there are: {listing(name, PASSES)}")
    module, _, attribute = PASSES[name].partition(":")
    found: type[GraphPass] = getattr(importlib.import_module(module), attribute)
    return found


__all__ = ["PASSES", "get", "names"]
