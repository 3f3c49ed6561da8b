"""Sizes that models leave open, by the names of dimensions and of inputs, and the advice where they are missing."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest

from autotune.cli.options import parse_shapes
from autotune.compiler.dynamic.declared import by_dimension
from autotune.errors import ModelImportError, UsageError
from autotune.frontends.model_builder import ModelBuilder
from autotune.frontends.models import declared_shapes, load, read_model
from autotune.frontends.sizes import advised_sizes


def two_inputs(*declared: Any) -> bytes:
    """A model whose inputs ``x`` and ``y`` are added to themselves, each an output."""
    b = ModelBuilder("open")
    for name, shape in zip("xy", declared, strict=False):
        b.node("Relu", [b.input(name, shape)], f"{name}_out")
    return b.finish([f"{name}_out" for name, _ in zip("xy", declared, strict=False)]).SerializeToString()


BOTH = two_inputs(("batch", "seq", 4), ("batch", 2))


@pytest.mark.parametrize(
    "given",
    [
        {"batch": 2, "seq": 6},
        {"batch": (2,), "seq": [6]},
        {"x": (2, 6, 4)},
        {"seq": 6, "y": (2, 2)},
        {"x": (2, 6, 4), "y": (2, 2), "batch": 2},
    ],
)
def test_sizes_are_given_by_the_names_of_dimensions_and_inputs(given: Any) -> None:
    graph = load(BOTH, shapes=given)
    assert [graph.type_of(name).shape for name in graph.inputs] == [(2, 6, 4), (2, 2)]


def test_a_dimension_without_a_name_is_that_of_an_input_and_sums_follow() -> None:
    assert load(two_inputs((None, 3)), shapes={"x.0": 5}).type_of("x").shape == (5, 3)
    summed = two_inputs(("past", 3), ("past + 1", "past+other+2"))
    graph = load(summed, shapes={"past": 4, "other": 1})
    assert [graph.type_of(name).shape for name in graph.inputs] == [(4, 3), (5, 7)]
    assert load(two_inputs(("past + 1", 3)), shapes={"past": 4}).type_of("x").shape == (5, 3)


def test_what_exporters_write_of_unknown_dimensions_is_no_name() -> None:
    """Two of them need not have the same size."""
    source = two_inputs(("?", "?"), ("None", "-1"))
    assert declared_shapes(read_model(source)) == {"x": ["x.0", "x.1"], "y": ["y.0", "y.1"]}
    graph = load(source, shapes={"x.0": 3, "x.1": 4, "y": (3, 1)})
    assert [graph.type_of(name).shape for name in graph.inputs] == [(3, 4), (3, 1)]


def test_a_name_of_both_is_the_input_where_that_has_one_axis() -> None:
    assert load(two_inputs(("x",), ("x", 2)), shapes={"x": 3}).type_of("y").shape == (3, 2)
    assert load(two_inputs(("x", 2), ("x", 4)), shapes={"x": 3}).type_of("y").shape == (3, 4)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"btach": 1}, "has no input 'btach', and no open dimension of that name\n  inputs: x, y\n"),
        ({"btach": 1}, "open dimensions: batch, seq; did you mean 'batch'?"),
        ({"batch": 0, "seq": 1}, "the size 'batch' of model in bytes is 1 or more, got 0"),
        ({"batch": -1, "seq": 1}, "the size 'batch' of model in bytes is 1 or more, got -1"),
        ({"batch": 3, "x": (2, 6, 4)}, "is given as 3 by batch=3 and 2 by the shape of 'x'"),
        ({"batch": (1, 2)}, "has no input 'batch'"),
        ({"batch": "1..8", "seq": 1}, "give one size: batch=1"),
        ({"batch": 1.5}, "sizes are whole numbers"),
    ],
)
def test_what_does_not_fit_is_one_clear_error(given: Any, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(BOTH, shapes=given)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "declared",
    [
        [("batch", "seq", 4), ("batch", 2)],
        [("batch", 3, "height", "width")],
        [(None, 3, None)],
        [("past", 3), ("past + 1", 2)],
        [("2*heads (each)", 3), ("it's", 2)],
    ],
)
def test_the_advice_works_as_it_is_printed(declared: list[Any]) -> None:
    model = two_inputs(*declared)
    with pytest.raises(ModelImportError) as caught:
        load(model)
    advice = str(caught.value).splitlines()
    options = shlex.split(advice[-2].partition("e.g. ")[2].partition(" (in Python")[0])
    assert options[::2] == ["--shape"] * (len(options) // 2)
    load(model, shapes=parse_shapes(options[1::2]))
    python = re.search(r"shapes=({.*})\)", advice[-2])
    assert python is not None
    load(model, shapes=eval(python[1]))
    ranges = shlex.split(advice[-1].partition(": ")[2].partition(" (compile")[0])
    sizes = parse_shapes(ranges[1::2])
    assert sizes is not None
    assert by_dimension(read_model(model), sizes) == {
        name: text if isinstance(text, str) else str(text[0]) for name, text in sizes.items()
    }


def test_the_advice_is_of_sizes_that_models_are_run_with() -> None:
    declared = declared_shapes(read_model(two_inputs(("N", "sequence_length"), (None, 3, "h", None))))
    assert advised_sizes(declared) == {"N": 1, "sequence_length": 128, "y.0": 1, "h": 224, "y.3": 224}
    with pytest.raises(UsageError, match=r"\n  give --shape batch=1 --shape seq=128$"):
        load(BOTH, shapes={"btach": 1})


def test_what_was_given_is_not_advised_again() -> None:
    with pytest.raises(ModelImportError, match=r"e\.g\. --shape seq=128 ") as caught:
        load(BOTH, shapes={"batch": 3})
    assert "input 'x': [3, seq, 4]" in str(caught.value)
    assert "input 'y'" not in str(caught.value)


def test_shapes_of_inputs_stand_beside_ranges() -> None:
    assert by_dimension(read_model(BOTH), {"y": (3, 2), "seq": "1..8"}) == {"batch": "3", "seq": "1..8"}
    with pytest.raises(UsageError, match=r"given as 3 and as '1\.\.8'"):
        by_dimension(read_model(BOTH), {"y": (3, 2), "batch": "1..8"})
