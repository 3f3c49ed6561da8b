"""The cluster that a fleet lives on, as an interface: where seats may be, and seats that may be lost at any call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class SeatLost(Exception):
    """A seat did not answer: its process or machine is gone, frozen or cut off, or it failed; the text says how."""


class RemoteSeat(Protocol):
    """A :class:`~autotune.tuning.fleet.seat.SeatServer` on another machine."""

    def report(self) -> dict[str, Any]:
        """Return what it says of itself, as soon as nobody else has the seat; raises SeatLost."""

    def answer(self, text: str, mac: str, contents: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a signed message; raises SeatLost."""

    def close(self) -> None:
        """Leave the seat to others, and end what is under way on it."""


class Cluster(Protocol):
    """Machines with seats."""

    def places(self) -> Mapping[str, str]:
        """Return the names of machines by the places for a seat on them, as of now."""

    def seat(self, place: str, key: bytes, job: str) -> RemoteSeat:
        """Return the seat at a place, for a job with this key."""

    def put(self, data: bytes) -> object:
        """Return a handle by which seats get this data."""

    def close(self) -> None:
        """Leave the cluster."""


__all__ = ["Cluster", "RemoteSeat", "SeatLost"]
