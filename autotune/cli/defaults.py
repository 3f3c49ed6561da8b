"""Defaults of options from ``autotune.toml``: a section a command, whose keys are the long names of its options."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from autotune import settings
from autotune.errors import AutotuneError, UsageError
from autotune.suggest import listing

FILE = "autotune.toml"
SHARED = "all"
"""The section of options of any command: each takes those that it has."""


def with_defaults(command: click.Command) -> click.Command:
    """Return a command that takes ``--config``, and defaults from there; a group as it is."""
    if not isinstance(command, click.Group) and all(param.name != _CONFIG for param in command.params):
        command.params.append(_option())
    return command


_CONFIG = "config"


def _option() -> click.Option:
    return click.Option(
        ["--config"],
        metavar="FILE",
        is_eager=True,  # before options whose defaults it has
        expose_value=False,
        callback=_take,
        help=f"Defaults of options. [default: AUTOTUNE_CONFIG, or the nearest {FILE} in this folder, those above it, "
        "and the user's configuration folder]",
    )


def _take(context: click.Context, _option: click.Parameter, named: str | None) -> None:
    """Let options that are not given have what the file says."""
    path = None if context.resilient_parsing else config_file(named or settings.current().config)
    if path is not None:
        context.default_map = defaults(context, path)


def config_file(named: str = "") -> Path | None:
    """Return the file that is named, else the nearest in the working directory, the folders above it and the user's
    configuration folder; None where there is none. Raises UsageError for a name without a file."""
    if named:
        if not os.path.exists(named):
            raise UsageError(f"no file {named} of defaults, which --config or AUTOTUNE_CONFIG names")
        return Path(named)
    import platformdirs

    here, own = Path.cwd(), Path(platformdirs.user_config_dir("autotune", appauthor=False))
    return next((path for each in (here, *here.parents, own) if os.path.isfile(path := each / FILE)), None)


def defaults(context: click.Context, path: Path) -> dict[str, Any]:
    """Return the defaults of a command by the names of its parameters.

    Raises UsageError for a file that is no TOML, for a section or key that there is not, and for a value that the
    option does not take.
    """
    table, where = _read(path), str(path)
    shared = _section(table, SHARED, where)
    for parent, child in pairwise(_chain(context)):
        group, name = parent.command, str(child.info_name)
        assert isinstance(group, click.Group)  # it has a child
        above = () if parent.parent else (SHARED,)
        _check_known(table, (*group.list_commands(parent), *above), "command", where)
        table, where = _section(table, name, where), f"{where}: [{' '.join(_names(child))}]"
    known = _options(context.command)
    _check_known(table, known, "option", where)
    _check_known(shared, {**_shared_options(), **known}, "option", f"{path}: [{SHARED}]")
    given = {name: value for name, value in shared.items() if name in known} | table
    return {str(known[name].name): _value(context, known[name], value, path) for name, value in given.items()}


def _read(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:  # not UTF-8, or not TOML
        raise UsageError(f"{path} is no TOML: {error}") from error


def _chain(context: click.Context) -> list[click.Context]:
    """Return a context and those above it, the command line's first."""
    return [*([] if context.parent is None else _chain(context.parent)), context]


def _names(context: click.Context) -> list[str]:
    return [str(each.info_name) for each in _chain(context)[1:]]


def _section(table: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    found = table.get(name, {})
    if not isinstance(found, dict):
        raise UsageError(f"{where}: {name} = {found!r} is no section\n  options stand below [{name}]")
    return found


def _check_known(table: Mapping[str, Any], known: Iterable[str], what: str, where: str) -> None:
    for name in table:
        if name not in known:
            raise UsageError(f"{where}: no {what} {name!r}\n  there are: {listing(name, known)}")


def _options(command: click.Command) -> dict[str, click.Option]:
    """Return the options of a command by their long names."""
    found = (param for param in command.params if isinstance(param, click.Option) and param.name != _CONFIG)
    return {max(option.opts, key=len).removeprefix("--"): option for option in found}


def _shared_options() -> dict[str, click.Option]:
    """Return the options that several commands declare together."""
    from autotune.cli.common import json_option
    from autotune.cli.options import FLAGS, seed_option

    def declared() -> None:
        """Bear the options."""

    for flag in (*FLAGS.values(), json_option, seed_option):
        flag(declared)
    return _options(click.command()(declared))


def _value(context: click.Context, option: click.Option, value: Any, path: Path) -> Any:
    """Return a value of the file as the command line would have it; raises UsageError."""
    given = [*value] if option.multiple and isinstance(value, list) else [value]
    name = max(option.opts, key=len).removeprefix("--")
    if any(isinstance(each, dict | list) or isinstance(each, bool) != option.is_flag for each in given):
        kind = "true or false" if option.is_flag else "a text or a number"
        raise UsageError(f"{path}: {name} = {value!r}\n  allowed: {kind}{', or a list' * option.multiple}")
    found = tuple(map(str, given)) if option.multiple else value if option.is_flag else str(value)
    try:
        option.process_value(context, found)
    except (AutotuneError, click.UsageError) as error:
        why = error.message if isinstance(error, click.UsageError) else str(error)
        raise UsageError(f"{path}: {name} = {value!r}: {why}") from error
    return found


__all__ = ["FILE", "SHARED", "config_file", "defaults", "with_defaults"]
