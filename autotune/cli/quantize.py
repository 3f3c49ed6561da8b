"""``autotune quantize``."""

from __future__ import annotations

import time
import zipfile
from pathlib import Path
from typing import Any

import click

from autotune.cli.common import announce, json_option, print_json
from autotune.cli.echo import echo
from autotune.cli.options import FLAGS, model_argument
from autotune.errors import InputError, UsageError
from autotune.suggest import counted


@click.command(
    epilog="Example: autotune quantize model.onnx --calibrate samples.npz -o model.int8.onnx, and then "
    "autotune compile model.int8.onnx -o model.atm"
)
@model_argument
@click.option(
    "--calibrate",
    "data",
    required=True,
    type=click.Path(path_type=Path),
    help="An .npz file with an array an input, by its name: one sample, or several along the first axis.",
)
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="The ONNX model to write."
)
@click.option(
    "--method",
    default="mse",
    show_default=True,
    help="How the range of an activation follows from the samples: minmax, percentile or mse.",
)
@click.option(
    "--percentile",
    type=float,
    default=99.99,
    show_default=True,
    help="Of --method percentile: what stays within.",
)
@click.option(
    "--leave-out", multiple=True, metavar="NAME", help="A node or an operator that stays in float32."
)
@click.option(
    "--correct-biases/--no-correct-biases",
    default=True,
    show_default=True,
    help="Take the means that rounded weights move off the biases.",
)
@click.option("--check/--no-check", default=True, show_default=True, help="Run both models on the samples.")
@click.option("--threads", type=int, metavar="N", help="Workers. [default: those of the target]")
@FLAGS["allow_oversubscription"]
@json_option
def command(
    model: str,
    data: Path,
    output: Path,
    method: Any,
    percentile: float,
    leave_out: tuple[str, ...],
    correct_biases: bool,
    check: bool,
    threads: int | None,
    allow_oversubscription: bool,
    as_json: bool,
) -> None:
    """Quantise MODEL to eight bits: weights by output channel, activations as samples say; writes a QDQ model."""
    import onnx

    from autotune.hardware import check_threads
    from autotune.quantization.quantize import agreement, quantize

    if threads is not None:
        check_threads(threads, allow_oversubscription=allow_oversubscription)
    samples = _samples(data)
    if not output.absolute().parent.is_dir():
        raise UsageError(f"there is no folder {str(output.absolute().parent)!r} to write {output.name} to")
    announce(f"quantising {model}")
    start = time.perf_counter()
    made = quantize(
        model,
        samples,
        method=method,
        percentile=percentile,
        leave_out=leave_out,
        correct_biases=correct_biases,
        threads=threads,
    )
    onnx.save(made.model, str(output))
    facts: dict[str, Any] = {
        "model": str(output),
        "bytes": output.stat().st_size,
        "products": made.products,
        "values": made.values,
        "seconds": time.perf_counter() - start,
    }
    if check:
        found = agreement(model, made.model, samples, threads)
        facts |= {"relative_error": found.relative, "same_greatest": found.first}
    if as_json:
        print_json(facts)
        return
    echo(
        f"of eight bits: {counted(made.products, 'product')} with weights, {counted(made.values, 'value')} between them"
    )
    if check:
        echo(
            f"on the samples: outputs are {100 * found.relative:.2g} % from those of {model} (norm of the difference), "
            f"the greatest element is the same in {100 * found.first:.3g} % of the rows"
        )
    echo(f"wrote {output}: {facts['bytes'] / 1e6:.1f} MB in {facts['seconds']:.1f} s")


def _samples(path: Path) -> dict[str, Any]:
    import numpy as np

    if not path.is_file():
        raise UsageError(f"there is no file {str(path)!r}")
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            raise InputError(f"{path} is a single array\n  write one with numpy.savez(path, NAME=array)")
        with found:
            return {name: found[name] for name in found.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is not an .npz file of arrays: {error}") from error


__all__ = ["command"]
