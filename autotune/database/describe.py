"""A workload in a few words, from its text: the form is that of :mod:`autotune.graph.text` or
:mod:`autotune.te.text`."""

from __future__ import annotations

import re

_TYPE = re.compile(r"(\w+)\[([\d, ]*)\]|none")
_TYPED = re.compile(r"\b(bool|b?float\d+|u?int\d+|complex\d+)\[")
_SOURCE = re.compile(r"^  (?:input|const) .*: ", re.MULTILINE)
_NODE = re.compile(r"^  (.+?) = (\w+)\(.* : (.*)$", re.MULTILINE)
_OUTPUT = re.compile(r"^  output (.*)$", re.MULTILINE)
_STAGE = re.compile(r"^t\d+ = compute\(\"(.*?)\"", re.MULTILINE)
_PROGRAM = re.compile(r"^arguments\(.*\)  # (.*) -> (.*)$", re.MULTILINE)


def operators_of(text: str) -> str:
    """Return the operators of a workload's text in their order, such as ``Conv, Add, Relu``; the tensors
    of a program."""
    return ", ".join([operator for _, operator, _ in _NODE.findall(text)] or _STAGE.findall(text))


def dtypes_of(text: str) -> frozenset[str]:
    """Return the types of the values of a workload's text.

    >>> sorted(dtypes_of("  const i1: int8[4]\\n  v0 = Cast(i1) {to=2} : float32[4]"))
    ['float32', 'int8']
    """
    return frozenset(_TYPED.findall(text))


def shapes_of(text: str) -> str:
    """Return shapes of the inputs and outputs of a workload's text, such as ``1x55x55x16, 64 → 1x55x55x64``.

    A type other than float32 stands before its shape.
    """
    program = _PROGRAM.search(text)
    if program is not None:
        return " → ".join(", ".join(map(_shown, _TYPE.finditer(types))) for types in program.groups())
    sources = [_shown(_TYPE.match(text, found.end())) for found in _SOURCE.finditer(text)]
    types: dict[str, str] = {}
    for names, _, declared in _NODE.findall(text):
        types.update(zip(names.split(", "), map(_shown, _TYPE.finditer(declared)), strict=False))
    outputs = [types.get(name, name) for line in _OUTPUT.findall(text) for name in line.split(", ")]
    return f"{', '.join(sources)} → {', '.join(outputs)}"


def _shown(found: re.Match[str] | None) -> str:
    if found is None or found[1] is None:
        return "none"
    sizes = found[2].replace(", ", "x") or "scalar"
    return sizes if found[1] == "float32" else f"{found[1]} {sizes}"


__all__ = ["dtypes_of", "operators_of", "shapes_of"]
