"""A watchdog: where nothing is over for a while, it says who waits for what, and lets all of it end."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from time import monotonic

from autotune.errors import DeviceLostError
from tests.stress.devices import Place
from tests.stress.graph import Graph

PATIENCE_S = 60.0
"""The time without an end of anything after which nothing ever will end."""
_AFTER_S = 60.0
"""So long the clients have to end once all devices were taken from them."""
_FRAMES = 6


def watch(
    clients: Sequence[threading.Thread],
    graphs: Mapping[int, Graph],
    places: Sequence[Place],
    patience: float = PATIENCE_S,
) -> str:
    """Wait for all clients. Where nothing was over for ``patience`` seconds the devices are lost to them.

    ``graphs`` has what each client is at. Returns a report of that, empty where they all came to their end.
    """
    before: object = None
    since = monotonic()
    while any(client.is_alive() for client in clients):
        for client in clients:
            client.join(min(0.2, patience / 4))
        steps = [(n, graph.steps) for n, graph in list(graphs.items())], [_completed(each) for each in places]
        if steps != before:
            before, since = steps, monotonic()
        elif monotonic() - since > patience:
            return _stopped(clients, graphs, places, patience)
    return ""


def _completed(place: Place) -> int:
    return sum(queue.completed for queue in place.queues)


def _stopped(
    clients: Sequence[threading.Thread],
    graphs: Mapping[int, Graph],
    places: Sequence[Place],
    patience: float,
) -> str:
    """The report, made before everything is let end."""
    lines = [f"a deadlock: nothing was over for {patience:g} s"]
    for number, graph in list(graphs.items()):
        if clients[number].is_alive():
            first, *rest = graph.state
            lines += [f"client {number}: {first}", *(f"    {line}" for line in rest)]
    lines += [place.state for place in places]
    lines += _stacks()
    error = DeviceLostError(f"abandoned: nothing was over for {patience:g} s")
    for graph in list(graphs.values()):
        graph.abandon(error)
    for place in places:
        place.device.lose(error)
    deadline = monotonic() + _AFTER_S
    for client in clients:
        client.join(max(0.0, deadline - monotonic()))
    alive = sum(client.is_alive() for client in clients)
    lines += [f"{alive} clients did not end when all devices were taken from them"] if alive else []
    return "\n    ".join(lines)


def _stacks() -> list[str]:
    """Return the place of each thread of this process, the innermost frames."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    lines = []
    for ident, frame in sys._current_frames().items():
        lines.append(f"thread {names.get(ident, ident)}:")
        for each in traceback.extract_stack(frame)[-_FRAMES:]:
            lines.append(f"    {each.filename}:{each.lineno} in {each.name}: {each.line}")
    return lines


__all__ = ["PATIENCE_S", "watch"]
