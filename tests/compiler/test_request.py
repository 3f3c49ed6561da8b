"""The request of a compilation: an option is said once, and so is what does not go together."""

from __future__ import annotations

import inspect
from dataclasses import fields

import pytest

import autotune
from autotune.cli.main import COMMANDS
from autotune.cli.options import FLAGS
from autotune.compiler.request import CompileOptions, CompileRequest
from autotune.errors import UsageError
from tests.graph.graphs import small_convnet

PUBLIC = (autotune.compile, autotune.compile_for_sizes, autotune.predict, autotune.query, autotune.tune)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, ""),
        ({"lock": "m.lock", "verify": True, "allow_oversubscription": True}, ""),
        (
            {"lock": "m.lock", "tolerance": 0.0, "finite": True, "placement": {"*": "cpu"}},
            "tolerance, finite, placement given together with the lock m.lock\n"
            "  which pins what these choose: leave them out, or make another lock with them",
        ),
        ({"shapes": {"n": "1..8"}, "traffic": "t.jsonl", "most_buckets": 2}, ""),
        ({"shapes": {"n": "1..8"}, "verify": True, "target": ("x86-64", "x86-64-v3")}, ""),
        ({"shapes": {"n": "1..8"}, "devices": ("cpu:0", "cpu:1"), "verify": True}, ""),
        (
            {"shapes": {"n": 8}, "traffic": "t.jsonl"},
            "traffic was given without a range of sizes, whose buckets it chooses\n"
            "  give a range: seq=1..512",
        ),
        ({"most_buckets": 0}, "there is at least 1 bucket, got 0"),
        (
            {"devices": ("cpu:0", "cpu:1"), "placement": {"*": "cpu:0"}},
            "a placement and devices to look one up for were given\n  leave out one of them",
        ),
        (
            {"devices": ("cpu:0", "cpu:1"), "threads": 1, "verify": True},
            "threads given for a model that runs on the devices that are named for it\n"
            "  they say for what and for how many threads to compile: leave out target and threads",
        ),
        (
            {"target": ("x86-64", "x86-64-v3", "x86-64")},
            "the targets x86-64 and x86-64 are both x86-64: one artifact holds it once",
        ),
    ],
)
def test_what_does_not_go_together(options, problem):
    request = CompileRequest("zoo:mlp", **options)
    assert "\n".join(request.problems()) == problem
    if problem:
        with pytest.raises(UsageError) as caught:
            request.checked()
        assert str(caught.value) == problem
    else:
        assert request.checked() is request


def test_what_only_the_model_says():
    """A graph has fixed sizes; a model that names devices needs no target; requests may be of sizes without a range."""
    (problem,) = CompileRequest(small_convnet(), shapes={"x": (1, 3)}).problems()
    assert problem == "shapes were given for a graph, which has fixed ones; they are for models"
    assert CompileRequest("m.onnx", target="x86-64").problems() == []
    (problem,) = CompileRequest("m.onnx", target="x86-64").problems(on_devices=True)
    assert problem.startswith("target given for a model that runs on the devices")


def test_one_target():
    assert CompileRequest("m.onnx", target="x86-64-v3", threads=2).one_target().threads == 2
    with pytest.raises(UsageError) as caught:
        CompileRequest("m.onnx", target=("x86-64", "x86-64-v3")).one_target()
    assert str(caught.value) == (
        "2 targets were given\n  give one: several are for artifacts of `autotune compile`"
    )


def test_given_are_the_options_that_are_not_as_by_default():
    assert CompileRequest("m.onnx").given() == []
    assert CompileRequest("m.onnx", devices=[], placement={}, shapes=None, threads=None).given() == []
    assert CompileRequest("m.onnx", tolerance=0.0, devices=["cpu"]).given() == ["tolerance", "devices"]


def test_each_keyword_is_a_field_and_a_flag():
    """A new option is a field with a keyword, and a flag: nothing is left out on the way."""
    assert (
        set(CompileOptions.__annotations__) == set(FLAGS) <= {field.name for field in fields(CompileRequest)}
    )
    for name, flag in FLAGS.items():

        @flag
        def command() -> None: ...

        (option,) = command.__click_params__
        assert option.name == name


@pytest.mark.parametrize("function", PUBLIC, ids=lambda function: function.__name__)
def test_public_functions_show_the_options_with_their_defaults(function):
    defaults = {field.name: field.default for field in fields(CompileRequest)}
    shown = inspect.signature(function).parameters
    assert not any(each.kind is each.VAR_KEYWORD for each in shown.values())
    for name in ("database", "target", "threads", "tolerance", "finite"):
        assert shown[name].default == defaults[name]


def test_an_option_that_a_function_does_not_take_is_an_error():
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'require_hit'"):
        autotune.predict("zoo:mlp", require_hit=True)
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'shapes'"):
        autotune.compile_for_sizes("zoo:mlp", {"batch": "1..2"}, shapes={})


@pytest.mark.parametrize("name", ["compile", "explain", "run", "tune", "query", "lock", "place"])
def test_commands_share_the_flags(name):
    from importlib import import_module

    assert name in COMMANDS
    command = import_module(f"autotune.cli.{name}").command
    helps = {each.name: getattr(each, "help", "") for each in command.params}
    for option in ("database", "tolerance", "finite", "shapes"):

        @FLAGS[option]
        def own() -> None: ...

        assert helps[option] == own.__click_params__[0].help
