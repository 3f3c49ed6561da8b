"""``--peers`` and ``--peer-python``: what a benchmark compares with, and where it is installed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import click

from autotune.cli.options_bench import Command, F


def peer_python_option() -> Callable[[F], F]:
    """Return ``--peer-python PYTHON``, as often as wished; the command gets a tuple named ``peer_pythons``."""
    return click.option(
        "--peer-python",
        "peer_pythons",
        multiple=True,
        type=click.Path(dir_okay=False),
        metavar="PYTHON",
        help="Interpreter of an environment that has peers; may be given several times. "
        "This environment is looked into first.",
    )


def with_onnxruntime(default: str = "onnxruntime") -> Callable[[Command], Command]:
    """Return both options, for a benchmark whose only peer is ONNX Runtime; ``default`` may be ``none``.

    The command gets the list of systems, empty or with one, as ``peers``. It is not called if ONNX Runtime is
    installed nowhere: :class:`autotune.errors.MissingExtraError`.
    """

    def add(command: Command) -> Command:
        @functools.wraps(command)
        def finding(*args: Any, peers: str, peer_pythons: Sequence[str], **values: Any) -> None:
            from autotune.bench.systems import find_peers

            command(*args, peers=find_peers([] if peers == "none" else [peers], peer_pythons), **values)

        choice = click.Choice(["onnxruntime", "none"])
        made: Command = click.option("--peers", type=choice, default=default, show_default=True)(
            peer_python_option()(finding)
        )
        return made

    return add


__all__ = ["peer_python_option", "with_onnxruntime"]
