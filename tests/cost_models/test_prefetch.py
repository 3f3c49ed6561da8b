"""Bytes that prefetchers bring late: what a nest counts, times what the machine says that it costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cost_models.machine import Machine
from cost_models.terms.prefetch import hidden, long_run
from search_spaces.nest import Body, Here, Loop, LoopNest, Numbers, TensorAccess

MACHINE = Machine()
TRANSPOSED = TensorAccess("x", 4, ((("i", 1),), (("j", 1),)), (64, 1024))
"""Rows of a page each."""


def bytes_of(rows: float, piece: float, level: int, machine: Machine) -> Numbers:
    """Return the bytes of a level where pieces of ``rows`` rows are visited one row after the other, then the next."""
    body = Body(*(np.ones(1) for _ in range(7)))
    loops = (
        Loop("j", np.asarray([1024 / piece])),
        Loop("i", np.asarray([rows])),
        Loop("j", np.asarray([piece]), "vectorized"),
    )
    nest = LoopNest("elementwise", 16, 0.0, {"i": 64, "j": 1024}, loops, (TRANSPOSED,), body)
    (found,), here = nest.touched, Here(nest, np.asarray([level]), np.arange(1))
    return long_run(TRANSPOSED, found, here, found.moved(here), machine)


def test_a_few_rows_in_pages_of_their_own_are_followed() -> None:
    machine = replace(MACHINE, short_run=0.0)
    assert bytes_of(16, 16, 0, machine) == pytest.approx([16 * 4096])
    assert bytes_of(32, 16, 0, machine) == pytest.approx([32 * 4096 * (1.0 + machine.scattered)])
    assert bytes_of(16, 16, 0, replace(machine, streams=8.0)) == pytest.approx(
        [16 * 4096 * (1.0 + machine.scattered)]
    )


def test_pieces_of_rows_take_longer_than_their_bytes() -> None:
    assert bytes_of(4, 64, 2, MACHINE) == pytest.approx([256 + MACHINE.short_run])
    assert bytes_of(4, 64, 0, MACHINE) == pytest.approx([4 * 4096])


def test_what_is_fetched_ahead_is_hidden_as_far_as_it_reaches() -> None:
    one, none, half = np.ones(1), np.zeros(1), np.full(1, MACHINE.fetch_reach / 2)
    assert hidden(TRANSPOSED, MACHINE) == 0.0
    ahead = replace(TRANSPOSED, ahead=half, abreast=one, awaited=none)
    assert hidden(ahead, MACHINE) == pytest.approx([0.5])
    assert hidden(replace(ahead, abreast=2 * one), MACHINE) == pytest.approx([1.0])
    waiting = replace(ahead, awaited=np.full(1, 4 * MACHINE.line_buffers))
    assert hidden(waiting, MACHINE) == pytest.approx([0.125])
