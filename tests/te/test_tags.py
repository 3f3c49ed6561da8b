"""Tags of all operations in a block or a function."""

from __future__ import annotations

import pytest

from autotune import te


@te.tag_scope("double")
def doubled(a: te.Tensor) -> te.Tensor:
    found: te.Tensor = te.compute(a.shape, lambda *at: a(*at) * 2, name="doubled")
    return found


def test_of_a_block_and_of_a_function() -> None:
    a = te.placeholder((4,), name="A")
    with te.tag_scope(tag="copy"):
        b = te.compute((4,), lambda i: a[i], name="B", attrs={"layout": "N"})
    assert (b.op.tag, b.op.attrs["layout"]) == ("copy", "N")
    assert [doubled(a).op.tag for _ in range(2)] == ["double", "double"]
    assert te.compute((4,), lambda i: a[i], name="C").op.tag == ""


def test_an_operation_has_one_tag() -> None:
    a = te.placeholder((4,), name="A")
    with te.tag_scope("outer"):
        with pytest.raises(ValueError, match=r"te\.tag_scope\('double'\) within te\.tag_scope\('outer'\)"):
            doubled(a)
        with pytest.raises(ValueError, match=r"B has the tag 'own' within te\.tag_scope\('outer'\)"):
            te.compute((4,), lambda i: a[i], name="B", tag="own")
    assert doubled(a).op.tag == "double"
