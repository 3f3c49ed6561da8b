"""``autotune completion``, and what there is to complete: models, databases, jobs, devices, targets."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autotune.cli.echo import echo
from autotune.errors import AutotuneError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_MODELS = (".onnx", ".atm", ".txt")
_SHELLS = ("bash", "zsh", "fish")
_WHOLE_WORDS = "COMP_WORDBREAKS=${COMP_WORDBREAKS//:}\n"
"""bash divides words at colons, which names of models and devices have."""


@click.command(epilog="Example: autotune completion fish > ~/.config/fish/completions/autotune.fish")
@click.argument("shell", type=click.Choice(_SHELLS))
def command(shell: str) -> None:
    """Print the script by which a shell completes commands, options, models, databases, jobs and devices.

    For every new shell: eval "$(autotune completion bash)" in ~/.bashrc, or the same with zsh in ~/.zshrc.
    """
    from click.shell_completion import get_completion_class

    from autotune.cli.main import cli

    found = get_completion_class(shell)
    assert found is not None  # the choice has click's names
    words = _WHOLE_WORDS if shell == "bash" else ""
    echo(words + found(cli, {}, "autotune", "_AUTOTUNE_COMPLETE").source(), whole=True)


def models(_context: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem[str]]:
    """Return the models of the zoo, and files of models and artifacts, that begin so."""
    from autotune.frontends import zoo

    entries = [zoo.info(name) for name in zoo.names()]
    named = [
        _item(f"zoo:{each.name}", help=each.summary)
        for each in entries
        if f"zoo:{each.name}".startswith(begun)
    ]
    return [*named, *_files(begun, _MODELS)]


def databases(_context: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem[str]]:
    """Return files of databases and packs that begin so."""
    return _files(begun, (".db", ".pack"))


def jobs(context: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem[str]]:
    """Return the jobs of the database that the command has been given, the newest first."""
    from autotune.cli.job_lines import jobs_of
    from autotune.database.opening import opened

    try:
        with opened(context.params.get("database"), read_only=True) as store:
            found = jobs_of(store)[::-1]
    except AutotuneError:
        return []  # the command itself will say why
    return [
        _item(each.job.id, help=f"{each.job.model}, {each.life.value}")
        for each in found
        if each.job.id.startswith(begun)
    ]


def devices(_context: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem[str]]:
    """Return the last of several devices that commas separate."""
    from autotune.runtime.hal.driver import devices as every

    before, comma, last = begun.rpartition(",")
    return [
        _item(before + comma + info.name, help=info.description)
        for info in every()
        if info.name.startswith(last)
    ]


def placements(context: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem[str]]:
    """Return the device after the sign of ``PATTERN=DEVICE``."""
    pattern, sign, last = begun.rpartition("=")
    found = devices(context, param, last) if sign else []
    return [_item(pattern + sign + each.value, help=each.help) for each in found]


def targets(_context: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem[str]]:
    """Return the known targets that begin so."""
    from autotune.target import known_targets

    return [_item(name) for name in known_targets() if name.startswith(begun)]


def _item(value: str, **about: Any) -> CompletionItem[str]:
    from click.shell_completion import CompletionItem  # only a shell that completes needs it

    return CompletionItem(value, **about)


def _files(begun: str, endings: Iterable[str]) -> list[CompletionItem[str]]:
    """Return files of these endings; only the folders, for the shell to go on in, where there is no file."""
    folder, slash, last = begun.rpartition("/")
    try:
        near = sorted(path for path in Path(folder + slash).iterdir() if path.name.startswith(last))
    except OSError:
        return []
    found = [path for path in near if path.suffix in endings]
    if not found:
        return [_item(begun, type="dir")] if any(path.is_dir() for path in near) else []
    shown = [path.name + "/" * path.is_dir() for path in near if path in found or path.is_dir()]
    return [_item(folder + slash + name) for name in shown]


__all__ = ["command", "databases", "devices", "jobs", "models", "placements", "targets"]
