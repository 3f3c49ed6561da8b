"""Rates and latencies of one core whose data are in its first-level cache."""

from __future__ import annotations

from autotune.calibration import kernels
from autotune.calibration.probe import PAGE, Probe, Times, page_aligned
from search_spaces.nest import CACHE_LINE

_CLOCK_STEPS, _LINKS, _MOVES, _PAGES, _FOLDS, _ROWS = 20, 16, 16, 256, 4, 32


def clock(probe: Probe) -> tuple[float, Times]:
    """Return Hertz while multiply-adds run: a chain of integer operations of one cycle each, beside four vectors."""
    data = page_aligned(PAGE)
    ir = kernels.multiply_adds("kernel", probe.lanes, 4, 1, integers=(1, _CLOCK_STEPS))
    reading = probe.time(ir, data.ctypes.data)
    return _CLOCK_STEPS / reading.best * 1e9, reading


def measure(probe: Probe, hertz: float) -> dict[str, tuple[float, Times]]:
    """Return values of Machine's fields, with the reading that each comes from."""
    data, lanes = page_aligned(_PAGES * PAGE + PAGE), probe.lanes
    width = 4 * lanes
    at = data.ctypes.data
    chains = 24 if probe.target.registers >= 32 else 12

    def cycles(ir: str) -> tuple[float, Times]:
        reading = probe.time(ir, at)
        return reading.best * hertz / 1e9, reading

    def rate(count: int, ir: str) -> tuple[float, Times]:
        taken, reading = cycles(ir)
        return count / taken, reading

    def per_load(offsets: list[int]) -> tuple[float, Times]:
        taken, reading = cycles(kernels.moves("kernel", lanes, offsets))
        return taken / len(offsets), reading

    within = [width * number for number in range(_MOVES)]
    chain, chained = cycles(kernels.multiply_adds("kernel", lanes, 1, _LINKS))
    straight, _ = per_load([CACHE_LINE * number for number in range(_MOVES)])
    split, crossing = per_load([CACHE_LINE * number + CACHE_LINE - width // 2 for number in range(_MOVES)])
    near, _ = per_load([CACHE_LINE * number for number in range(_PAGES)])
    far, translated = per_load([PAGE * number + CACHE_LINE * number % PAGE for number in range(_PAGES)])
    apart, _ = cycles(kernels.side_by_side("kernel", lanes, _ROWS, PAGE + CACHE_LINE))
    in_one_set, evicted = cycles(kernels.side_by_side("kernel", lanes, _ROWS, PAGE))
    folded, folding = cycles(kernels.folds("kernel", lanes, _FOLDS))
    # As many of each kind as a core of six could start while it is busy with the multiply-adds.
    mixed = kernels.multiply_adds("kernel", lanes, 8, 1, loads=8, integers=(7, 4))
    found = {
        "arithmetic_ports": rate(2 * chains, kernels.multiply_adds("kernel", lanes, chains, 2)),
        "latency": (chain / _LINKS, chained),
        "load_ports": rate(_MOVES, kernels.moves("kernel", lanes, within)),
        "scalar_load_ports": rate(chains, kernels.broadcasts("kernel", lanes, chains)),
        "store_ports": rate(_MOVES, kernels.moves("kernel", lanes, within, store=True)),
        "issue_width": rate(8 + 8 + 7 * 4 + 2, mixed),  # with the loop's own
        "line_split_cycles": (max(split - straight, 0.0), crossing),
        "page_cycles": (max(far - near, 0.0), translated),
        "conflict_cycles": (max(in_one_set - apart, 0.0) / _ROWS, evicted),
        "fold_cycles": (folded / _FOLDS, folding),
    }
    if "avx512bf16" in probe.target.features:
        found["pair_ports"] = rate(chains, kernels.pair_products("kernel", lanes, chains))
    return found


__all__ = ["clock", "measure"]
