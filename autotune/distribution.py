"""The names by which this project is installed: the package is imported as ``autotune``, and another project is
installed by that name."""

from __future__ import annotations

import sys

NAME = "autotune-compiler"
"""The whole of it; ``pyproject.toml`` has the same name, by a test."""
RUNTIME = "autotune-runtime"
"""The part that loads and runs artifacts, by itself (``packaging/runtime``)."""


def install(extra: str = "") -> str:
    """Return the command that installs the package, with an extra.

    >>> install(), install("sign")
    ('pip install autotune-compiler', "pip install 'autotune-compiler[sign]'")
    """
    return f"pip install '{NAME}[{extra}]'" if extra else f"pip install {NAME}"


def version() -> str:
    """Return the version of what is imported, installed or not.

    To import the package for it would be to depend on all that it shows.
    """
    found: str = sys.modules[__name__.partition(".")[0]].__version__
    return found


__all__ = ["NAME", "RUNTIME", "install", "version"]
