"""Graph IR: immutable graphs of named, typed values, their operators, text form and verifier."""

from autotune.graph.ir import ABSENT, Affinity, Array, Attr, Attrs, Graph, Node, TensorType

__all__ = ["ABSENT", "Affinity", "Array", "Attr", "Attrs", "Graph", "Node", "TensorType"]
