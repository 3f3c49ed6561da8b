"""Tags for all operations that are made within a block or a function."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_CURRENT: ContextVar[str] = ContextVar("tag of operations", default="")


@contextmanager
def tag_scope(tag: str) -> Iterator[None]:
    """Give operations a tag: ``with te.tag_scope("conv"):`` around them, or ``@te.tag_scope("conv")`` above a function.

    An operation within may not have a tag of its own, nor may scopes be nested: raises ValueError, as in TVM.

    >>> from autotune import te
    >>> A = te.placeholder((4,), name="A")
    >>> with te.tag_scope("double"):
    ...     B = te.compute((4,), lambda i: A[i] * 2, name="B")
    >>> B.op.tag
    'double'
    """
    if _CURRENT.get():
        raise ValueError(
            f"te.tag_scope({tag!r}) within te.tag_scope({_CURRENT.get()!r}): an operation has one tag"
        )
    token = _CURRENT.set(tag)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def tagged(name: str, tag: str) -> str:
    """Return the tag of an operation: its own or the scope's; raises ValueError where both are given."""
    scope = _CURRENT.get()
    if tag and scope:
        raise ValueError(
            f"{name} has the tag {tag!r} within te.tag_scope({scope!r}): an operation has one tag"
        )
    return tag or scope


__all__ = ["tag_scope", "tagged"]
