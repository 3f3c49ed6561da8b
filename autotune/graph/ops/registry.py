"""The operator registry: one `OpDef` an operator, in the file of its family, loaded when asked for.

To add an operator: write its `OpDef` in a family file and list its name in `FAMILIES`.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from autotune.errors import GraphError, InternalError
from autotune.graph.ir import Array, Attr, Attrs, TensorType

if TYPE_CHECKING:
    from autotune import te

Kind: TypeAlias = Literal[
    "contraction",
    "convolution",
    "reduction",
    "softmax",
    "normalization",
    "pool",
    "elementwise",
    "movement",
    "shape",
]
Types: TypeAlias = Sequence[TensorType | None]
Arrays: TypeAlias = Sequence[Array | None]
Tensors: TypeAlias = "Sequence[te.Tensor | None]"

InferRule: TypeAlias = Callable[[Types, Attrs], list[TensorType]]
Reference: TypeAlias = Callable[[Arrays, Attrs], list[Array]]
Compute: TypeAlias = "Callable[[Tensors, Attrs, Sequence[str]], list[te.Tensor]]"
Complete: TypeAlias = Callable[[Types, dict[str, Attr]], None]


class _Required:
    """Marks an attribute without default."""

    def __repr__(self) -> str:
        return "REQUIRED"


class _Optional:
    """Marks an attribute that may be absent, or whose default `complete` works out."""

    def __repr__(self) -> str:
        return "OPTIONAL"


REQUIRED = _Required()
OPTIONAL = _Optional()


@dataclass(frozen=True)
class OpDef:
    """One operator: everything that the compiler knows about it.

    `attributes` maps each attribute's name to its default, `REQUIRED` or `OPTIONAL`. `complete`
    edits the attributes in place once defaults are in: it resolves what depends on the input types
    (negative axes, strides that default to ones), so that two ways to write a node become one.
    The three rules below get complete attributes; call them by the methods, which see to that.
    """

    name: str
    kind: Kind
    inputs: tuple[int, int]  # least and most inputs; absent ones in the middle count
    infer_rule: InferRule
    reference_rule: Reference
    compute_rule: Compute | None = None
    attributes: Mapping[str, Attr | _Required | _Optional] = field(default_factory=dict)
    complete: Complete | None = None

    def canonical(self, types: Types, attrs: Attrs) -> dict[str, Attr]:
        """The attributes with defaults filled in and axes normalised, sorted by name.

        Raises GraphError for a missing or unknown attribute or a wrong number of inputs.
        """
        self._check_inputs(types)
        unknown = sorted(set(attrs) - set(self.attributes))
        if unknown:
            allowed = ", ".join(sorted(self.attributes)) or "none"
            raise GraphError(f"{self.name} has no attribute {unknown[0]!r}; it has: {allowed}")
        full: dict[str, Attr] = {}
        for key, default in self.attributes.items():
            if key in attrs:
                full[key] = attrs[key]
            elif isinstance(default, _Required):
                raise GraphError(f"{self.name} needs attribute {key!r}")
            elif not isinstance(default, _Optional):
                full[key] = default
        if self.complete is not None:
            self.complete(types, full)
        return {k: full[k] for k in sorted(full)}

    def infer(
        self, types: Types, attrs: Attrs, constants: Sequence[Array | None] = ()
    ) -> list[TensorType]:
        """Types of the outputs (dense). `constants` is not needed by canonical nodes."""
        del constants
        return self.infer_rule(types, self.canonical(types, attrs))

    def reference(self, arrays: Arrays, attrs: Attrs) -> list[Array]:
        """NumPy result, in the dtypes that `infer` promises."""
        types = [None if a is None else TensorType.of(a) for a in arrays]
        full = self.canonical(types, attrs)
        expected = self.infer_rule(types, full)
        results = self.reference_rule(arrays, full)
        for want, got in zip(expected, results, strict=True):
            if want != TensorType.of(got):
                raise InternalError(
                    f"reference of {self.name} gave {TensorType.of(got)} where its shape rule "
                    f"says {want}"
                )
        return results

    def compute(self, tensors: Tensors, attrs: Attrs, name: str | Sequence[str]) -> list[te.Tensor]:
        """Tensor expressions of the outputs, named `name` (one name an output)."""
        if self.compute_rule is None:
            raise GraphError(f"{self.name} has no tensor expression: it must be folded away")
        types = [None if t is None else TensorType(t.shape, t.dtype) for t in tensors]
        full = self.canonical(types, attrs)
        self.infer_rule(types, full)  # the shape rule's errors are better than an index error
        names = (name,) if isinstance(name, str) else tuple(name)
        return self.compute_rule(tensors, full, names)

    def _check_inputs(self, types: Types) -> None:
        least, most = self.inputs
        if not least <= len(types) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise GraphError(f"{self.name} takes {wanted} inputs, got {len(types)}")
        for i, t in enumerate(types[:least]):
            if t is None:
                raise GraphError(f"{self.name}: input {i} is required")


FAMILIES: Mapping[str, tuple[str, ...]] = {
    "elementwise": (),
    "contraction": (),
    "convolution": (),
    "pool": (),
    "normalization": (),
    "softmax": (),
    "reduction": (),
    "movement": (),
    "shape": (),
}

_FAMILY_OF = {op: family for family, ops in FAMILIES.items() for op in ops}
_REGISTRY: dict[str, OpDef] = {}


def register(op: OpDef) -> OpDef:
    """Add an operator. Raises InternalError if the name is taken or no family lists it."""
    if op.name in _REGISTRY:
        raise InternalError(f"operator {op.name!r} is registered twice")
    if op.name not in _FAMILY_OF:
        raise InternalError(f"operator {op.name!r} is not listed in registry.FAMILIES")
    _REGISTRY[op.name] = op
    return op


def supported(name: str) -> bool:
    """Whether the operator is known; loads nothing."""
    return name in _FAMILY_OF


def names() -> tuple[str, ...]:
    """Every known operator, sorted; loads nothing."""
    return tuple(sorted(_FAMILY_OF))


def get(name: str) -> OpDef:
    """The definition of an operator. Raises GraphError, with near names, if there is none."""
    found = _REGISTRY.get(name)
    if found is not None:
        return found
    family = _FAMILY_OF.get(name)
    if family is None:
        near = difflib.get_close_matches(name, _FAMILY_OF, n=3)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise GraphError(f"unknown operator {name!r}{hint}")
    importlib.import_module(f"autotune.graph.ops.{family}")
    if name not in _REGISTRY:
        raise InternalError(f"{family}.py lists operator {name!r} but does not register it")
    return _REGISTRY[name]
