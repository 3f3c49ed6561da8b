"""Sizes of requests with their frequencies: from a file, to choose buckets by and to weigh them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.compiler.dynamic.buckets import SizeRange
from autotune.errors import UsageError
from autotune.foreign import parse_json

_LINE = '{"sizes": {"batch": 1, "seq": 17}, "count": 120}'
_MOST_LINES = 1 << 20


@dataclass(frozen=True)
class RequestTraffic:
    """The number of requests by their sizes."""

    requests: tuple[tuple[Mapping[str, int], int], ...]
    where: str = "the traffic"

    @staticmethod
    def read(path: str | Path) -> RequestTraffic:
        """Return a file of JSON lines, each with ``sizes`` by symbol and a ``count`` (1 without); raises UsageError."""
        try:
            lines = Path(path).read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"the traffic {path} cannot be read: {error}") from error
        if len(lines) > _MOST_LINES:
            raise UsageError(f"{path} has {len(lines)} lines; {_MOST_LINES} are the most: add up equal sizes")
        found = tuple(
            _request(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()
        )
        if not found:
            raise UsageError(f"{path} has no requests; a line is {_LINE}")
        return RequestTraffic(found, str(path))

    def ranges(self, given: Mapping[str, SizeRange], most: int) -> dict[str, SizeRange]:
        """Return the ranges, those without named buckets with at most so many, where least is padded.

        Raises UsageError for sizes out of a range, and for other symbols.
        """
        for sizes, _ in self.requests:
            self._check(sizes, given)
        return {
            symbol: each if each.named else replace(each, buckets=self._chosen(symbol, each, most))
            for symbol, each in given.items()
        }

    def weights(self, ranges: Mapping[str, SizeRange]) -> Counter[tuple[int, ...]]:
        """Return the number of requests that take each bucket, by its sizes in the order of the ranges."""
        found: Counter[tuple[int, ...]] = Counter()
        for sizes, count in self.requests:
            found[tuple(min(b for b in each.buckets if b >= sizes[s]) for s, each in ranges.items())] += count
        return found

    def _check(self, sizes: Mapping[str, int], ranges: Mapping[str, SizeRange]) -> None:
        if sizes.keys() != ranges.keys():
            raise UsageError(
                f"{self.where} has requests of {', '.join(sizes)}, the ranges are of {', '.join(ranges)}"
            )
        for symbol, size in sizes.items():
            if not ranges[symbol].least <= size <= ranges[symbol].most:
                raise UsageError(
                    f"{self.where} has a request of {symbol} = {size}; the range is {ranges[symbol].least}.."
                    f"{ranges[symbol].most}"
                )
            if (size - ranges[symbol].least) % ranges[symbol].step:
                raise UsageError(
                    f"{self.where} has a request of {symbol} = {size}; the range goes from {ranges[symbol].least} in "
                    f"steps of {ranges[symbol].step}"
                )

    def _chosen(self, symbol: str, of: SizeRange, most: int) -> tuple[int, ...]:
        counts: Counter[int] = Counter()
        for sizes, count in self.requests:
            counts[max(sizes[symbol], 1 if of.least else max(2, of.step))] += count
        return least_padding({of.most: 0, **counts}, most)


def least_padding(counts: Mapping[int, int], most: int) -> tuple[int, ...]:
    """Choose at most so many buckets, the largest size among them, for which the sizes of requests grow least in all.

    Segments of the ascending sizes by dynamic programming: each is served by its largest.

    >>> least_padding({1: 10, 2: 1, 30: 5, 64: 0}, 2), least_padding({1: 10, 2: 1, 30: 5, 64: 0}, 3)
    ((2, 64), (2, 30, 64))
    """
    sizes = sorted(counts)
    best: list[tuple[int, tuple[int, ...]]] = [(0, ()), *((-1, ()) for _ in sizes)]
    for _ in range(most):
        best = _one_more(best, sizes, counts)
    return best[-1][1]


def _one_more(
    best: Sequence[tuple[int, tuple[int, ...]]], sizes: Sequence[int], counts: Mapping[int, int]
) -> list[tuple[int, tuple[int, ...]]]:
    """Return the least padding of the first sizes, and its buckets, with one more than in ``best``; -1:
    there is none."""
    found = [best[0]]
    for end in range(1, len(sizes) + 1):
        options = [best[end]] if best[end][0] >= 0 else []
        padding = 0
        for begin in range(end - 1, -1, -1):
            padding += counts[sizes[begin]] * (sizes[end - 1] - sizes[begin])
            before, buckets = best[begin]
            if before >= 0:
                options.append((before + padding, (*buckets, sizes[end - 1])))
        found.append(min(options, default=(-1, ())))
    return found


def _request(line: str, where: str) -> tuple[Mapping[str, int], int]:
    try:
        raw: Any = parse_json(line)
    except ValueError as error:
        raise UsageError(f"{where} is no JSON: {error}\n  a line is {_LINE}") from error
    sizes = raw.get("sizes") if isinstance(raw, dict) else None
    count = raw.get("count", 1) if isinstance(raw, dict) else None
    if (
        not isinstance(sizes, dict)
        or not sizes
        or {*raw} - {"sizes", "count"}
        or not all(type(n) is int and n >= 0 for n in sizes.values())
        or type(count) is not int
        or count < 1
    ):
        raise UsageError(f"{where} is no request: {line[:80]}\n  a line is {_LINE}")
    return sizes, count


__all__ = ["RequestTraffic", "least_padding"]
