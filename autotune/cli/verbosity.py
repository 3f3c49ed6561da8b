"""The verbosity of commands: with ``--quiet`` its result alone, with ``--verbose`` the reasons, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_QUIET, _VERBOSE = f"{__name__}.quiet", f"{__name__}.verbose"


def verbosity(quiet: str, verbose: str = "") -> Callable[[F], F]:
    """Give a command ``-q`` and, where it knows more than it says, ``-v``, which wins; the texts are their help."""

    def decorate(command: F) -> F:
        if verbose:
            command = _flag("-v", "--verbose", _VERBOSE, verbose)(command)
        return _flag("-q", "--quiet", _QUIET, quiet)(command)

    return decorate


def _flag(short: str, long: str, name: str, text: str) -> Callable[[F], F]:
    def store(context: click.Context, _option: click.Parameter, given: bool) -> None:
        context.meta[name] = given

    return click.option(short, long, is_flag=True, expose_value=False, callback=store, help=text)


def is_quiet() -> bool:
    """Return whether only the result of this command is wanted."""
    return _of_context(_QUIET) and not is_verbose()


def is_verbose() -> bool:
    """Return whether the reasons are wanted, too."""
    return _of_context(_VERBOSE)


def _of_context(name: str) -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(name))


__all__ = ["is_quiet", "is_verbose", "verbosity"]
