"""``autotune quantize``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from autotune.cli.common import announce, json_option, print_json
from autotune.cli.echo import echo
from autotune.cli.options import FLAGS, accuracy_options, model_argument
from autotune.errors import UsageError
from autotune.suggest import counted


@click.command(
    epilog="Example: autotune quantize model.onnx --data samples.npz -o model.int8.onnx, and then "
    "autotune compile model.int8.onnx -o model.atm"
)
@model_argument
@accuracy_options("--calibrate")
@click.option(
    "--weights",
    metavar="int4|int8",
    help="Only the weights of MatMul and Gemm, by blocks, rounded to the nearest: activations stay, no data is needed.",
)
@click.option(
    "--block",
    type=int,
    default=32,
    show_default=True,
    help="Of --weights: so many of a column have one scale.",
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
@click.option(
    "--check/--no-check",
    default=True,
    show_default=True,
    help="Run both models on the samples; --accuracy always does.",
)
@click.option("--threads", type=int, metavar="N", help="Workers. [default: those of the target]")
@FLAGS["allow_oversubscription"]
@json_option
def command(
    model: str,
    data: Path | None,
    accuracy: str | None,
    weights: str | None,
    block: int,
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
    """Quantise MODEL to eight bits: weights by output channel, activations as samples say; writes a QDQ model. Or its
    weights alone, by blocks (--weights)."""
    import onnx

    from autotune.hardware import check_threads
    from autotune.quantization.quantize import agreement, quantize
    from autotune.quantization.within import quantize_within
    from autotune.tuning.measure.error_budget import Accuracy

    if not output.absolute().parent.is_dir():
        raise UsageError(f"there is no folder {str(output.absolute().parent)!r} to write {output.name} to")
    if weights is not None:
        if data is not None or accuracy is not None:
            raise UsageError(
                "--weights needs no --data and has no --accuracy: weights are rounded as they are"
            )
        _by_blocks(model, weights, block, leave_out, output, as_json)
        return
    budget = None if accuracy is None else Accuracy.of(accuracy)
    if threads is not None:
        check_threads(threads, allow_oversubscription=allow_oversubscription)
    samples = _samples(model, data, budget is not None)
    announce(f"quantising {model}")
    start = time.perf_counter()
    given: dict[str, Any] = {
        "method": method,
        "percentile": percentile,
        "leave_out": leave_out,
        "correct_biases": correct_biases,
        "threads": threads,
    }
    within = None if budget is None else quantize_within(model, samples, budget, **given)
    made = quantize(model, samples, **given) if within is None else within.quantization
    onnx.save(made.model, str(output))
    facts: dict[str, Any] = {
        "model": str(output),
        "bytes": output.stat().st_size,
        "products": made.products,
        "values": made.values,
        "seconds": time.perf_counter() - start,
    }
    if within is not None:
        facts["accuracy"] = {"budget": str(budget), "random_inputs": data is None} | within.to_json()
    elif check:
        found = agreement(model, made.model, samples, threads)
        facts |= {"relative_error": found.relative, "same_greatest": found.first}
    if as_json:
        print_json(facts)
        return
    echo(
        f"of eight bits: {counted(made.products, 'product')} with weights, {counted(made.values, 'value')} between them"
    )
    if within is not None:
        echo(within.lines(str(budget)))
    elif check:
        echo(
            f"on the samples: outputs are {100 * found.relative:.2g} % from those of {model} (norm of the difference), "
            f"the greatest element is the same in {100 * found.first:.3g} % of the rows"
        )
    echo(f"wrote {output}: {facts['bytes'] / 1e6:.1f} MB in {facts['seconds']:.1f} s")


def _by_blocks(
    model: str, weights: str, block: int, leave_out: tuple[str, ...], output: Path, as_json: bool
) -> None:
    """Write a model whose weights alone are of few bits."""
    import onnx

    from autotune.quantization.by_blocks import quantize_weights

    start = time.perf_counter()
    announce(f"quantising the weights of {model}")
    made = quantize_weights(model, weights, block, leave_out)
    onnx.save(made.model, str(output))
    size, seconds = output.stat().st_size, time.perf_counter() - start
    if as_json:
        print_json({"model": str(output), "bytes": size, "products": made.products, "seconds": seconds})
        return
    echo(f"weights of {counted(made.products, 'product')} are {weights}, in blocks of {block}")
    echo(f"wrote {output}: {size / 1e6:.1f} MB in {seconds:.1f} s")


def _samples(model: str, data: Path | None, may_be_random: bool) -> dict[str, Any]:
    """Return the arrays of the data, or random ones with a warning."""
    from autotune.quantization.compiling import RANDOM, samples_of

    if data is None and not may_be_random:
        raise UsageError(
            "samples of the inputs are needed to quantise by: give --data FILE.npz, or a folder of such"
        )
    if data is None:
        echo(f"warning: {RANDOM}", err=True)
    return dict(samples_of(model, data))


__all__ = ["command"]
