"""The command line: one file a command, loaded when it is used, and errors of one line.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import gc
import importlib
import io
import os
import sys
from collections.abc import Mapping, Sequence

import click

from autotune import __version__
from autotune.cli.echo import echo
from autotune.cli.groups import SuggestingGroup
from autotune.errors import AutotuneError, UsageError
from autotune.garbage import collector_paused

INTERRUPTED = 130

COMMANDS: Mapping[str, str] = {
    "zoo": "List models that need no download.",
    "tune": "Search faster schedules for a model.",
    "jobs": "List the tuning jobs of a database: running, finished, killed.",
    "status": "Show what a job is doing now, and what it has found so far.",
    "report": "Show the report of a job, hours later as at its end.",
    "serve": "Show jobs, workloads and cost models in a browser, while jobs run and afterwards.",
    "place": "Search a placement of the parts of a model on devices.",
    "compile": "Compile a model to an artifact, with the best schedules of the database.",
    "quantize": "Quantise a float32 model to eight-bit weights and activations, calibrated on samples.",
    "lock": "Pin the options and schedules of a model in a file, so that other machines compile the same code.",
    "check": "Fail if a model does not fit its lock, or has become slower.",
    "run": "Run a model or an artifact, and time it.",
    "query": "Show the best schedule of each workload of a model, or why there is none.",
    "explain": "Show passes, dispatches, schedules and memory of a model.",
    "retrain": "Train the cost model on all measured runs.",
    "models": "Manage versions of the cost model: list, show, use, roll back, evaluate.",
    "replay": "Do recorded jobs and searches again, without measuring.",
    "db": "Inspect, check, combine and export tuning databases.",
    "devices": "List devices, and this machine as measured for the cost model.",
    "bench": "Run benchmarks.",
    "schema": "Print the JSON Schema of what a command prints with --json.",
    "completion": "Print the script by which a shell completes commands, models, databases, jobs and devices.",
}
"""The help of each command; its code is ``autotune.cli.NAME``."""


class LazyGroup(SuggestingGroup):
    """A group whose commands are modules that are imported when they are called.

    ``--help`` lists them without importing any.
    """

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the commands in the order of the pipeline."""
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import a command's module."""
        if name not in COMMANDS:
            return None
        with collector_paused():  # modules stay
            module = importlib.import_module(f"autotune.cli.{name}")
        command: click.Command = module.command
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, from the table."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: autotune tune zoo:squeezenet --trials 200 --db tuning.db",
)
@click.version_option(__version__)
def cli() -> None:
    """Tune an ML model on this machine and compile it from what was measured.

    MODEL is the path of an ONNX file or zoo:NAME.
    """


def main(
    arguments: Sequence[str] | None = None, command: click.Command = cli, name: str = "autotune"
) -> None:
    """Run a command, by default the whole command line, and exit the process."""
    code = run(arguments, command, name)
    gc.freeze()  # nothing is left to be found: Python would search all objects for cycles as it ends, for 0.2 s
    sys.exit(code)


def run(arguments: Sequence[str] | None = None, command: click.Command = cli, name: str = "autotune") -> int:
    """Run a command that the user called by ``name``; the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without "µ" is no reason to end a job
    try:
        _check_folder()
        result = command.main(arguments, prog_name=name, standalone_mode=False)
    except AutotuneError as error:
        return _fail(str(error), error.exit_code)
    except click.UsageError as error:
        error.show()
        return 2
    except click.ClickException as error:
        return _fail(error.format_message(), error.exit_code)
    except MemoryError as error:
        return _fail(f"not enough memory: {error}" if str(error) else "not enough memory", 1)
    except (KeyboardInterrupt, click.Abort):
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader, for example head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return result if isinstance(result, int) else 0


def _check_folder() -> None:
    """Raise UsageError where the working directory was deleted: each relative path would be an error of its own."""
    try:
        os.getcwd()
    except OSError as error:
        raise UsageError(
            f"the working directory is not there any more ({error.strerror}); change to another folder"
        ) from error


def _fail(message: str, code: int) -> int:
    echo(f"error: {message}", err=True)
    return code


if __name__ == "__main__":
    main()

__all__ = ["COMMANDS", "INTERRUPTED", "LazyGroup", "cli", "main", "run"]
