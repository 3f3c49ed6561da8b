"""Random graphs of all operators compute their reference; any number of them: ``python -m tests.compiler.fuzz``."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from autotune.errors import UsageError
from autotune.graph import ops
from autotune.passes.pipeline import NEEDED, optional_passes, standard_passes
from autotune.workers.process import Died
from tests import campaign
from tests.compiler import fuzz
from tests.compiler.drafts import Draft, Unfit
from tests.compiler.operator_rules import LEFT_OUT, RULES
from tests.seeds import seeds


def test_every_operator_has_a_rule() -> None:
    own = {name for name in ops.names() if not ops.is_custom(name)}
    assert set(RULES) | set(LEFT_OUT) == own
    assert not set(RULES) & set(LEFT_OUT)


def test_every_rule_makes_its_operator() -> None:
    missing = set(RULES)
    for seed in range(2000):
        missing -= set(fuzz.problem(seed).operators)
        if not missing:
            break
    assert not missing


@pytest.mark.parametrize("block", seeds(1, 2))
def test_graphs_compute_their_reference(block: int) -> None:
    run_block(10 * block, 10)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(40))
def test_many_graphs_compute_their_reference(block: int) -> None:
    run_block(campaign.FIRST + 50 * block, 50)


def run_block(first: int, count: int) -> None:
    """Check seeds first..first+count."""
    for seed in range(first, first + count):
        line = fuzz.verdict(seed)
        assert "finding" not in line, f"python -m tests.compiler.fuzz 1 --first {seed}\n{line['finding']}"


@pytest.mark.parametrize("op", ["Less", "LessOrEqual", "Equal", "Greater", "GreaterOrEqual"])
def test_comparisons_that_rounding_decides_are_not_drawn(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both operands round upwards in every variant, and the computed ones may not."""
    drawn, other = Draft(random.Random(0), fuzz.FINE), Draft(random.Random(0), fuzz.FINE)
    for draft, near in ((drawn, 5e-10), (other, 1.0)):
        x = draft.operand(np.array([0.5, 7e-4], np.float32))
        value = draft.node("Sin", x)
        beside = draft.node("Add", value, draft.constant(np.array([1.0, near], np.float32)))
        monkeypatch.setattr(draft, "pick", lambda *_, value=value: value)
        monkeypatch.setattr("tests.compiler.operator_rules.partner", lambda *_, beside=beside: beside)
        if near == 1.0:
            RULES[op](draft, op)
        else:
            with pytest.raises(Unfit):
                RULES[op](draft, op)


def test_a_value_just_above_a_step_is_not_rounded() -> None:
    draft = Draft(random.Random(0), fuzz.FINE)
    for offset, fits in ((0.25, True), (np.float32(2e-7), False)):
        x = draft.operand(np.array([2.0], np.float32))
        value = draft.node("Add", x, draft.constant(np.array([0.5 + offset], np.float32)))
        if fits:
            draft.node("Round", draft.node("Exp", draft.node("Log", value)))
            continue
        with pytest.raises(Unfit):
            draft.node("Round", draft.node("Exp", draft.node("Log", value)))


def test_needed_passes_are_passes() -> None:
    names = {p.name for p in standard_passes()}
    assert names >= NEEDED
    assert optional_passes() == names - NEEDED


@pytest.mark.parametrize("name", ["fold_constants", "simplfy"])
def test_passes_that_cannot_be_left_out_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=rf"cannot leave out the pass '{name}'\n  one of apply_to_parts, .*"):
        standard_passes(without=[name])


def test_one_wrong_element_is_found() -> None:
    given = fuzz.problem(0)
    name = given.drawn.graph.outputs[0]
    wrong = given.drawn.expected[name].copy()
    last = wrong.flat[-1]
    wrong.flat[-1] = not last if wrong.dtype == bool else last * 2 + 1
    drawn = replace(given.drawn, expected={**given.drawn.expected, name: wrong})
    with pytest.raises(AssertionError, match=f"{name}: 1 of {wrong.size} elements differ"):
        fuzz.check(replace(given, drawn=drawn))


def test_a_seed_gives_the_same_graph() -> None:
    first, second = fuzz.problem(5), fuzz.problem(5)
    assert str(first.drawn.graph) == str(second.drawn.graph)
    assert (first.way, first.without) == (second.way, second.without)
    for name, array in first.drawn.feed.items():
        np.testing.assert_array_equal(array, second.drawn.feed[name])


def test_a_process_that_ends_is_a_finding() -> None:
    died = {"finding": "the worker died (SIGSEGV)"}
    assert fuzz.report({1: {"seed": 1, **died}}).endswith("findings: 1\n  seed 1: the worker died (SIGSEGV)")
    assert fuzz.WORK.ended("check", Died("the worker died (SIGSEGV)")) == died
