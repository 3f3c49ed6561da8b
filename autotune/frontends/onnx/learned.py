"""Operators of ai.onnx.ml, which exporters of scikit-learn and of boosted trees write, by those of ONNX.

Numbers only: categories and labels that are strings are encoded as integers outside of the model. ZipMap is the last
node of a classifier; its result is the tensor of the scores, in the order of the labels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from autotune.frontends.onnx.foreign import ForeignNode, defined
from autotune.frontends.onnx.functions import Definition
from autotune.frontends.onnx.schema import check_against
from autotune.frontends.onnx.scores import labelled, transformed, two_scores
from autotune.frontends.onnx.trees import TREES
from autotune.frontends.onnx.vectors import VECTORS

_DOMAIN = "ai.onnx.ml"


@dataclass(frozen=True)
class LearnedRule:
    """The definition of an operator that ONNX describes, but not by others."""

    add: Callable[[ForeignNode], None]

    def define(self, node: ForeignNode) -> Definition:
        schema, newest = _schema(node.proto.op_type, frozenset(node.given))
        check_against(schema, newest, node.proto, node.scope)
        strings = [name for name, value in node.given.items() if name.endswith("strings") and value]
        if strings and node.proto.op_type != "ZipMap":
            raise node.fail(
                f"attribute {strings[0]!r} has strings, which are not supported\n"
                "  fit the model on categories and labels that are integers, e.g. by scikit-learn's OrdinalEncoder "
                "and LabelEncoder, and export it with zipmap=False"
            )
        return defined(node, self.add, _defaults(schema))


@cache
def _schema(op: str, given: frozenset[str]) -> tuple[Any, Any]:
    """Return the newest version of an operator that has these attributes, or the newest one; and the newest one."""
    from onnx import defs

    versions = [s for s in defs.get_all_schemas_with_history() if s.domain == _DOMAIN and s.name == op]
    newest_first = sorted((s for s in versions if not s.deprecated), key=lambda s: -s.since_version)
    fitting = [s for s in newest_first if given <= {*s.attributes}]
    return (fitting or newest_first)[0], newest_first[0]


def _defaults(schema: Any) -> dict[str, Any]:
    """Return the defaults of attributes; those that may be absent are None."""
    from onnx import AttributeProto, helper

    found = {}
    for name, attribute in schema.attributes.items():
        default = attribute.default_value
        given = default.type != AttributeProto.UNDEFINED
        value = helper.get_attribute_value(default) if given else None
        found[name] = value.decode() if isinstance(value, bytes) else value
    return found


def _real(node: ForeignNode) -> str:
    """Return the first input as rows of float32."""
    return node.rows(node.cast(node.input(0), "float32"))


def _scaler(node: ForeignNode) -> None:
    x = node.cast(node.input(0), "float32")
    offset, scale = (
        node.constant(node.attrs[name] or default, "float32")
        for name, default in (("offset", 0), ("scale", 1))
    )
    node("Mul", node("Sub", x, offset), scale, result=node.output(0))


def _normalizer(node: ForeignNode) -> None:
    """Divide rows by their largest element, by the sum of magnitudes, or by their length; rows of zeros stay."""
    x, axes = node.cast(node.input(0), "float32"), node.constant([-1])
    op = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}.get(node.attrs["norm"])
    if op is None:
        raise node.fail(f"norm is {node.attrs['norm']!r}; it is one of MAX, L1, L2")
    norm = node(op, x, axes, keepdims=1)
    zero, one = node.constant(0, "float32"), node.constant(1, "float32")
    node("Div", x, node("Where", node("Equal", norm, zero), one, norm), result=node.output(0))


def _imputer(node: ForeignNode) -> None:
    x, dtype = node.input(0), node.type(0).dtype
    kind, suffix = ("float", "floats") if np.dtype(dtype).kind == "f" else ("int64", "int64s")
    values, replaced = node.attrs[f"imputed_value_{suffix}"], node.attrs[f"replaced_value_{kind}"]
    if not values:
        raise node.fail(f"attribute 'imputed_value_{suffix}' is missing; x is {node.type(0)}")
    if len(values) not in (1, node.type(0).shape[-1]):
        raise node.fail(f"imputed_value_{suffix} has {len(values)} numbers; x is {node.type(0)}")
    gone = node("IsNaN", x) if np.isnan(replaced) else node("Equal", x, node.number(replaced))
    node("Where", gone, node.constant(values, dtype), x, result=node.output(0))


def _binarizer(node: ForeignNode) -> None:
    threshold = node.attrs["threshold"]
    whole = np.dtype(node.type(0).dtype).kind == "i"
    above = node("Greater", node.input(0), node.number(np.floor(threshold) if whole else threshold))
    node("CastLike", above, node.input(0), result=node.output(0))


def _one_hot(node: ForeignNode) -> None:
    """Compare with each category; one that is none of them has zeros, whatever ``zeros`` says."""
    if not node.attrs["cats_int64s"]:
        raise node.fail("attribute 'cats_int64s' is missing")
    x = node.cast(node.input(0), "int64")  # of floats towards zero
    same = node("Equal", node("Unsqueeze", x, node.constant([-1])), node.constant(node.attrs["cats_int64s"]))
    node.cast(same, "float32", result=node.output(0))


def _label_encoder(node: ForeignNode) -> None:
    """Look keys up: the first that equals an element, of which NaN is one; elsewhere the default."""
    keys, _ = _table(node, "keys")
    values, kind = _table(node, "values")
    if keys.shape != values.shape or not keys.size:
        raise node.fail(f"it has {keys.size} keys and {values.size} values")
    default = node.attrs[f"default_{kind}"]
    default = (-1 if values.dtype.kind == "i" else -0.0) if default is None else default
    if kind == "tensor" and node.attrs["default_tensor"] is not None:
        from onnx import numpy_helper

        default = numpy_helper.to_array(default).reshape(())
    x = node("Unsqueeze", node.input(0), node.constant([-1]))
    keys_of_x = keys.astype(node.type(0).dtype)
    same = node("Equal", x, node.constant(keys_of_x, keys_of_x.dtype.name))
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        same = node("Or", same, node("And", node("IsNaN", x), node.constant(np.isnan(keys), "bool")))
    flags = node.cast(same, "float32")
    place = node("ArgMax", flags, axis=-1, keepdims=0)
    found = node("Gather", node.constant(values, values.dtype.name), place)
    any_key = node.cast(node("ReduceMax", flags, node.constant([-1]), keepdims=0), "bool")
    node("Where", any_key, found, node.constant(default, values.dtype.name), result=node.output(0))


def _table(node: ForeignNode, what: str) -> tuple[np.ndarray[Any, Any], str]:
    """Return the keys or values of a LabelEncoder, and how their kind is called."""
    for suffix, kind, dtype in (
        ("int64s", "int64", "int64"),
        ("floats", "float", "float32"),
        ("tensor", "tensor", ""),
    ):
        value = node.attrs.get(f"{what}_{suffix}")
        if value is not None and suffix == "tensor":
            from onnx import TensorProto, numpy_helper

            if value.data_type == TensorProto.STRING:
                break
            return numpy_helper.to_array(value).reshape(-1), kind
        if value:
            return np.asarray(value, dtype), kind
    raise node.fail(
        f"{what} are missing, or strings, which are not supported\n  encode categories as integers before the model"
    )


def _zip_map(node: ForeignNode) -> None:
    node("Identity", node.input(0), result=node.output(0))


def _linear(node: ForeignNode, rows: int) -> str:
    """Return x * coefficients + intercepts, of so many rows of coefficients."""
    coefficients = np.asarray(node.attrs["coefficients"], np.float32)
    x = _real(node)
    features = node.type(0).shape[-1]
    if coefficients.size != rows * features:
        raise node.fail(
            f"{coefficients.size} coefficients are not {rows} times the features of x, {node.type(0)}"
        )
    y = node("MatMul", x, node.constant(coefficients.reshape(rows, features).T, "float32"))
    intercepts = node.attrs["intercepts"]
    if not intercepts:
        return y
    if len(intercepts) != rows:
        raise node.fail(f"it has {len(intercepts)} intercepts; it needs {rows}")
    return node("Add", y, node.constant(intercepts, "float32"))


def _linear_regressor(node: ForeignNode) -> None:
    targets = node.attrs["targets"]
    transformed(node, _linear(node, targets), targets, node.output(0))


def _linear_classifier(node: ForeignNode) -> None:
    labels = node.attrs["classlabels_ints"] or ()
    rows = len(node.attrs["intercepts"] or ()) or max(len(labels), 1)
    scores = _linear(node, rows)
    if rows > 1:
        labelled(node, node("ArgMax", scores, axis=1, keepdims=0), labels or range(rows))
        transformed(node, scores, rows, node.output(1))
        return
    above = node("Greater", node("Squeeze", scores, node.constant([1])), node.constant(0, "float32"))
    labelled(node, above, labels if len(labels) == 2 else (0, 1))
    if len(labels) == 2:
        two_scores(node, scores, "1 - score", node.output(1))
    else:
        transformed(node, scores, 1, node.output(1))


LEARNED: Mapping[str, LearnedRule] = {
    name: LearnedRule(add)
    for name, add in {
        "Binarizer": _binarizer,
        "Imputer": _imputer,
        "LabelEncoder": _label_encoder,
        "LinearClassifier": _linear_classifier,
        "LinearRegressor": _linear_regressor,
        "Normalizer": _normalizer,
        "OneHotEncoder": _one_hot,
        "Scaler": _scaler,
        "ZipMap": _zip_map,
        **VECTORS,
        **TREES,
    }.items()
}
"""The definition of each operator."""

__all__ = ["LEARNED"]
