"""Operators of the graph IR: one file a family, each operator in one place.

To add one, :data:`~autotune.graph.ops.registry.define` it in the file of its family, and give it a case in
``tests/graph/ops/cases.py``. What it states about itself (:class:`~autotune.graph.ops.definition.OpDef`) is all that
passes, fusion, the import of ONNX and the drawing of inputs go by; tests hold it against the NumPy reference.
"""

from autotune.graph.ops.definition import Attribute, OpDef
from autotune.graph.ops.registry import (
    FAMILIES,
    HOW_TO_NAME,
    define_custom,
    get,
    is_custom,
    names,
    register,
    registered,
    supported,
)

__all__ = [
    "FAMILIES",
    "HOW_TO_NAME",
    "Attribute",
    "OpDef",
    "define_custom",
    "get",
    "is_custom",
    "names",
    "register",
    "registered",
    "supported",
]
