"""Words of messages: the name that a misspelt one is closest to, lists of what is known, plurals."""

from __future__ import annotations

from collections.abc import Iterable

_SIMILAR, _LIKE = 0.6, 0.65
"""Of ``difflib``: a name that may have been meant, and one that several others are as near to."""


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like ``name``, whatever the case; None if none is like it.

    A beginning of one name alone counts as that name.

    >>> closest("sqeezenet", ["squeezenet", "resnet50"])
    'squeezenet'
    >>> closest("stat", ["export", "stats"]), closest("xyz", ["export", "stats"])
    ('stats', None)
    """
    import difflib  # takes milliseconds; only errors need it

    folded = {other.lower(): other for other in known}
    begun = [other for other in folded if name and other.startswith(name.lower())]
    found = begun if len(begun) == 1 else difflib.get_close_matches(name.lower(), folded, 1, _SIMILAR)
    return folded[found[0]] if found else None


def similar(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Return the known names that are like ``name``, whatever the case, the likest first.

    >>> similar("MaxPol", ["MaxPool", "MaxRoiPool", "Add", "maxpool2"])
    ['MaxPool', 'maxpool2', 'MaxRoiPool']
    """
    import difflib

    folded = {other.lower(): other for other in known}
    return [folded[each] for each in difflib.get_close_matches(name.lower(), folded, most, _LIKE)]


def did_you_mean(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Return ``; did you mean 'x'?`` for the end of a message; empty if nothing known is like ``name``.

    >>> did_you_mean("sqeezenet", ["squeezenet"], prefix="zoo:")
    "; did you mean 'zoo:squeezenet'?"
    """
    found = closest(name, known)
    return "" if found is None else f"; did you mean {prefix + found!r}?"


def listing(name: str, known: Iterable[str]) -> str:
    """Return all that is known, for the end of a message, and what ``name`` may have been meant to be.

    >>> listing("tp", ["guided", "tpe"])
    "guided, tpe; did you mean 'tpe'?"
    """
    names = list(known)
    return ", ".join(names) + did_you_mean(name, names)


def counted(number: int, noun: str) -> str:
    """Return a number of things.

    >>> counted(1, "thread"), counted(2, "thread"), counted(2, "process"), counted(2, "dispatch")
    ('1 thread', '2 threads', '2 processes', '2 dispatches')
    """
    ending = "" if number == 1 else "es" if noun.endswith(("s", "ch", "sh")) else "s"
    return f"{number} {noun}{ending}"


__all__ = ["closest", "counted", "did_you_mean", "listing", "similar"]
