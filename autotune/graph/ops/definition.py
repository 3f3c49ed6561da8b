"""The definition of an operator: all that the compiler knows about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias, cast, get_args

import numpy as np

from autotune.errors import GraphError, InternalError
from autotune.graph.ir import Array, Attr, Attrs, TensorType
from autotune.graph.ops.facts import Domain, Part, Weights

if TYPE_CHECKING:
    from autotune import te

AnchorKind: TypeAlias = Literal[
    "attention",
    "contraction",
    "convolution",
    "reduction",
    "softmax",
    "normalization",
    "pool",
    "winograd",
    "strassen",
    "sequential",
]
"""Kinds of operators that decide how their dispatch is scheduled."""
Kind: TypeAlias = Literal[AnchorKind, "elementwise", "movement", "shape"]
WorkloadKind: TypeAlias = Literal[AnchorKind, "depthwise", "chain", "elementwise"]
ViewKind: TypeAlias = Literal["reshape", "permutation", "window", "join"]
"""The way in which a result can lie in its operand's memory, or the other way round: as the same elements in the same
order, with its axes in another order, as a part of it; or its operands as parts of it."""
Role: TypeAlias = Literal["anchor", "elementwise", "rearrangement", "blend", "patches", "lookup", "opaque"]
"""The role of an operator in fusion; see `OpDef.role`."""
ANCHOR_KINDS: tuple[AnchorKind, ...] = get_args(AnchorKind)
Types: TypeAlias = Sequence[TensorType | None]
Arrays: TypeAlias = Sequence[Array | None]
Tensors: TypeAlias = "Sequence[te.Tensor | None]"

InferRule: TypeAlias = Callable[[Types, Attrs], list[TensorType]]
Reference: TypeAlias = Callable[[Arrays, Attrs], list[Array]]
Compute: TypeAlias = "Callable[[Tensors, Attrs, Sequence[str]], list[te.Tensor]]"
Complete: TypeAlias = Callable[[Types, dict[str, Attr]], None]
Applies: TypeAlias = Callable[[Types, Attrs], bool]
Length: TypeAlias = Callable[[Types, Attrs], int]
PartRule: TypeAlias = Callable[[Types, Attrs, int], Part]
DomainRule: TypeAlias = Callable[[Types, Attrs, int], Domain | None]
WorkloadRule: TypeAlias = Callable[[Types, Attrs], WorkloadKind]
Flops: TypeAlias = Callable[[Types, Sequence[TensorType], Attrs], int]


@dataclass(frozen=True)
class Attribute:
    """Declares one attribute: its type and default.

    Neither `default` nor `required` means that it may be absent, or that `OpDef.complete` works it
    out from the input types.
    """

    type: Literal["int", "float", "str", "ints"]
    default: Attr | None = None
    required: bool = False
    choices: tuple[str, ...] = ()

    def check(self, op: str, key: str, value: Attr) -> Attr:
        """Return the value in the declared type (bool to int, int to float), or GraphError."""
        if self.type == "int" and isinstance(value, int):
            return int(value)
        if self.type == "float" and isinstance(value, (int, float)):
            return float(value)
        if self.type == "ints" and isinstance(value, tuple):
            return value
        if self.type == "str" and isinstance(value, str):
            if self.choices and value not in self.choices:
                allowed = ", ".join(self.choices)
                raise GraphError(f"{op}: attribute {key} = {value!r}; allowed: {allowed}")
            return value
        raise GraphError(f"{op}: attribute {key} = {value!r} is not of type {self.type}")


LAYOUT = Attribute("str", "NCHW", choices=("NCHW", "NHWC"))
COLUMNS = Attribute("ints")
"""Of a product that several were made: how many columns, or output channels, each of them has. It changes no number,
but says where they may be computed apart."""


@dataclass(frozen=True)
class OpDef:
    """One operator: everything that the compiler knows about it.

    Rules get complete attributes. Methods that take attributes complete them first, unless they say otherwise.
    """

    name: str
    kind: Kind
    inputs: tuple[int, int]
    """Least and most inputs; absent ones in the middle count."""
    infer_rule: InferRule
    reference_rule: Reference
    compute_rule: Compute | None = None
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    complete: Complete | None = None
    """Edits the attributes in place once defaults are in: it resolves what depends on the input types (negative axes,
    strides that default to ones), so that two ways to write a node become one."""
    flops_rule: Flops | None = None
    """Counts arithmetic; without it there is one operation an element of the larger side."""
    in_onnx: bool = True
    """True if ONNX has the operator under this name, with these inputs."""

    # Dispatches
    workload_rule: WorkloadRule | None = None
    """The kind of a workload of which this is the anchor, where it is not `kind`."""
    moves: Literal["rearrangement", "blend", "patches", "lookup", "opaque"] = "opaque"
    """The role in fusion of what moves data. A "rearrangement" has one operand, which it reads by an index; a "blend"
    reads several elements of it, so that it does not compute what makes them; a "lookup" reads it by indices that
    another operand holds."""
    prologue: tuple[Role, ...] = ()
    """Roles of what may be computed in the same dispatch where the first operand is read."""
    view: ViewKind | None = None
    """The way in which operand and result can share memory."""
    crosses: bool = False
    """True if its result is its operand on another device, which attribute `device` names."""
    part_rule: PartRule | None = None
    """The place of each result of a view in the operand, or of each operand of a join in the result; not
    for a reshape."""

    # Algebra
    positional: bool = False
    """Elementwise, but what it does depends on where an element stands."""
    commutative: bool = False
    neutral: float | None = None
    """The number that changes nothing as the last operand, or as any one of a commutative operator."""
    is_copy_rule: Applies | None = None
    """True if the result is the first operand as it is; without a rule it never is."""
    permutable: Literal["axis", "axes"] | None = None
    """The attribute that names axes: the operator is the same in any order of its operands' axes, if these follow."""
    axis_lists: tuple[str, ...] = ()
    """Attributes with an entry for each of those axes, in their order."""
    weights: Weights | None = None
    bias_input: int | None = None
    """The input with a number for each output channel that is added to it."""

    # Values
    index_input: int | None = None
    """The input that holds indices along attribute `axis` of input 0."""
    index_tuples: bool = False
    """True if its last dimension holds an index along each of several axes instead, from `batch_dims` on (or 0)."""
    sum_length: Length | None = None
    """Terms of the sums of a product of the first two inputs."""
    bits_input: int | None = None
    """The input whose integers are several numbers each."""
    positive_inputs: tuple[int, ...] = ()
    """Inputs that must be positive for results to be finite."""
    domain_rule: DomainRule | None = None
    """The values of each input, where other fields do not say it."""

    def canonical(self, types: Types, attrs: Attrs) -> dict[str, Attr]:
        """Return the attributes with defaults filled in and axes normalised, sorted by name.

        Raises GraphError for a missing or unknown attribute or a wrong number of inputs.
        """
        self._check_inputs(types)
        unknown = sorted(set(attrs) - set(self.attributes))
        if unknown:
            allowed = ", ".join(sorted(self.attributes)) or "none"
            raise GraphError(f"{self.name} has no attribute {unknown[0]!r}; it has: {allowed}")
        full: dict[str, Attr] = {}
        for key, declared in self.attributes.items():
            if key in attrs:
                full[key] = declared.check(self.name, key, attrs[key])
            elif declared.default is not None:
                full[key] = declared.default
            elif declared.required:
                raise GraphError(f"{self.name} needs attribute {key!r}")
        if self.complete is not None:
            self.complete(types, full)
        return {k: full[k] for k in sorted(full)}

    @property
    def pointwise(self) -> bool:
        """Return whether an element of the result is the same function of the operands' elements at its
        place, anywhere."""
        return self.kind == "elementwise" and not self.positional

    @property
    def role(self) -> Role:
        """Return the role in fusion: "opaque" is never fused."""
        if self.kind in ANCHOR_KINDS:
            return "anchor"
        return "elementwise" if self.kind == "elementwise" else self.moves

    def workload_kind(self, types: Types, attrs: Attrs) -> WorkloadKind:
        """Return the kind of a workload that it is the anchor of, "elementwise" if it is none; the
        attributes are complete."""
        if self.workload_rule is not None:
            return self.workload_rule(types, attrs)
        return self.kind if self.kind in ANCHOR_KINDS else "elementwise"

    def part(self, types: Types, attrs: Attrs, index: int) -> Part:
        """Return the part of the operand that is result ``index``, or of the result of a join that is
        operand ``index``.

        The attributes are complete.
        """
        if self.part_rule is None:
            raise InternalError(f"{self.name} is no view of a part")
        return self.part_rule(types, attrs, index)

    def domain(self, types: Types, attrs: Attrs, index: int) -> Domain | None:
        """Return the values that input ``index`` should hold, if not any; the attributes are complete."""
        first, own = types[0], types[index]
        if self.domain_rule is not None:
            return self.domain_rule(types, attrs, index)
        if index in self.positive_inputs:
            return Domain("positive")
        if index == self.bits_input:
            return Domain("bits")
        if index == self.index_input and first is not None:
            return Domain("index", min((first.shape[a] for a in self.indexed_axes(types, attrs)), default=0))
        if index == 1 and self.weights is not None and own is not None:
            channels = own.shape[self.weights.output_axis(attrs)]
            return Domain("weights", own.size // max(channels, 1))
        if index < 2 and self.sum_length is not None:
            return Domain("factor", self.sum_length(types, attrs))
        return None

    def indexed_axes(self, types: Types, attrs: Attrs) -> tuple[int, ...]:
        """Return the axes of input 0 that the input of indices chooses along, one a column; the
        attributes are complete."""
        indices = None if self.index_input is None else types[self.index_input]
        if indices is None:
            return ()
        if not self.index_tuples:
            return (cast(int, attrs["axis"]),)
        first = cast(int, attrs.get("batch_dims", 0))
        return tuple(range(first, first + indices.shape[-1]))

    def is_copy(self, types: Types, attrs: Attrs) -> bool:
        """Return whether the result is the first operand, as it is; the attributes are complete."""
        return self.is_copy_rule is not None and self.is_copy_rule(types, attrs)

    def complete_and_infer(self, types: Types, attrs: Attrs) -> tuple[dict[str, Attr], list[TensorType]]:
        """Return `canonical` and `infer` at once."""
        full = self.canonical(types, attrs)
        return full, self.infer_rule(types, full)

    def reference(self, arrays: Arrays, attrs: Attrs) -> list[Array]:
        """Return NumPy result, in the dtypes that `infer` promises."""
        types = [None if a is None else TensorType.of(a) for a in arrays]
        full = self.canonical(types, attrs)
        expected = self.infer_rule(types, full)
        if not any(t.size for t in expected):
            return [np.zeros(t.shape, t.dtype) for t in expected]
        results = self.reference_rule(arrays, full)
        for want, got in zip(expected, results, strict=True):
            if want != TensorType.of(got):
                raise InternalError(
                    f"reference of {self.name} gave {TensorType.of(got)} where its shape rule says {want}"
                )
        return results

    def compute(self, tensors: Tensors, attrs: Attrs, name: str | Sequence[str]) -> list[te.Tensor]:
        """Return the tensor expressions of the outputs, named `name` (one name an output)."""
        if self.compute_rule is None:
            raise GraphError(f"{self.name} has no tensor expression: it must be folded away")
        types = [None if t is None else TensorType(t.shape, t.dtype) for t in tensors]
        full = self.canonical(types, attrs)
        self.infer_rule(types, full)  # the shape rule's errors are better than an index error
        names = (name,) if isinstance(name, str) else tuple(name)
        return self.compute_rule(tensors, full, names)

    def flops(self, types: Types, attrs: Attrs) -> int:
        """Count arithmetic operations (a multiply-add counts two); 0 for what only moves data."""
        full = self.canonical(types, attrs)
        results = self.infer_rule(types, full)
        if self.flops_rule is not None:
            return self.flops_rule(types, results, full)
        if self.kind in ("movement", "shape"):
            return 0
        return max(t.size for t in [*types, *results] if t is not None)

    def _check_inputs(self, types: Types) -> None:
        least, most = self.inputs
        if not least <= len(types) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise GraphError(f"{self.name} takes {wanted} inputs, got {len(types)}")
        for i, t in enumerate(types[:least]):
            if t is None:
                raise GraphError(f"{self.name}: input {i} is required")
