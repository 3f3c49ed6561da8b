"""Held-out architectures as an experiment: the rows of what they came to, and its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, FrameRows, Record, Say, TableView
from autotune.bench.side_by_side import Pace
from autotune.bench.systems import find_peers
from autotune.bench.tables import NOTHING, duration, geometric_mean, number, ratio, scientific
from results.bench.held_out import measure as held_out
from results.bench.held_out.architectures import EXPORTERS
from results.bench.held_out.measure import TOLERANCE, Outcome

_SHOWN = 300
"""Characters of a failure."""


def measure(
    say: Say,
    names: Sequence[str],
    folder: Path,
    exporters: Sequence[str],
    threads: int,
    rounds: int,
    peers: str,
    peer_pythons: Sequence[str],
) -> Iterator[Sequence[Record]]:
    """Export, compile and compare each architecture by each exporter."""
    held_out.check_names(names)
    peer = next(iter(find_peers([] if peers == "none" else [peers], peer_pythons)), None)
    pace = Pace(rounds, min(rounds, 2))
    for outcome in held_out.measure(held_out.chosen(names), exporters, folder, peer, threads, pace, say):
        yield [record_of(outcome, threads)]


def record_of(outcome: Outcome, threads: int) -> Record:
    """Return an outcome as a row; what compiling took stands only where there is an image."""
    fields = asdict(outcome)
    done = fields.pop("compiled")
    found = {**fields, "threads": threads, "ratio": outcome.ratio, "right": outcome.right}
    if done is not None:
        found["peak_bytes"] = done.pop("peak_bytes")
        found |= {} if done.pop("failure") else done
    return found | {"failure": outcome.failure or None}


def _name(rows: FrameRows) -> str:
    return f"{rows.get('name')}, {rows.get('exporter')}"


def _verdict(rows: FrameRows) -> str:
    if rows.get("failure"):
        return "no: see below"
    if rows.get("error") is None:
        return NOTHING
    return "yes" if rows.get("right") else "WRONG"


def _failure(rows: FrameRows) -> str:
    """Return a failure on one line; without the list of what is supported."""
    text = " ".join(rows.get("failure").split("\n  supported:")[0].split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..."


def _notes(rows: FrameRows) -> Iterator[str]:
    compared = [one for one in rows.by("name", "exporter").values() if one.get("error") is not None]
    right = [one for one in compared if one.get("right")]
    slow = [_name(one) for one in right if (one.get("ratio") or 0.0) > 1.1]
    mean = ratio(geometric_mean(one.get("ratio") for one in right))
    yield (
        f"right: {len(right)} of {len(rows)}; at most {TOLERANCE:g} from the peer, relative to the largest value "
        "of an output"
    )
    yield f"geometric mean of the ratios of those that are right: {mean}; slower than 1.1: " + (
        ", ".join(slow) or "none"
    )
    yield "peak memory: of the process that compiles and its workers, at most"
    for one in compared:
        if one.get("tolerance") is not None:
            yield f"{_name(one)}: compiled with a tolerance of {one.get('tolerance'):g}"
    for one in compared:
        if one.get("off") is not None:
            yield (
                f"{_name(one)}: {scientific(one.get('error'))} from the peer; from the model in float64, by PyTorch, "
                f"autotune is {scientific(one.get('off'))} and the peer {scientific(one.get('peer_off'))}"
            )


def _size(digits: int) -> Callable[[float | None], str]:
    return number(digits, " MiB", 2.0**20)


ABOUT = (
    "Architectures that the compiler was not written for, of torchvision, timm and transformers and of blocks written "
    "here, with random weights, by both of PyTorch's exporters: compiled untuned, each in a process of its own, and "
    "compared with the peer, which is interleaved with us."
)

EXPERIMENT = Experiment(
    title="Held-out models",
    about=ABOUT,
    summary="Export, compile and compare unseen architectures; NAMES are some of them (all by default).",
    example="mamba unet --folder exported --peer-python peers/bin/python",
    options=(
        options.words(),
        options.folder(
            "--folder",
            "Where the exported models are written, or were: what is there is not exported again.",
            Path("held-out"),
        ),
        options.listed(
            "--exporters",
            "dynamo,torchscript",
            "PyTorch's exporters: dynamo, torchscript.",
            known=lambda: EXPORTERS,
            what="exporter",
        ),
        options.workers(),
        options.number("--rounds", 6, "Turns that each of both gets."),
        *options.onnxruntime(),
    ),
    measure=measure,
    views=(
        TableView(
            "Held-out models, {threads}",
            ("name", "exporter"),
            (
                Column("model, exporter", _name),
                Column("task", "family"),
                Column("right", _verdict),
                Column("max. error", "error", scientific),
                Column("compile", "seconds", number(1, " s")),
                Column("peak memory", "peak_bytes", _size(0)),
                Column("arena", "arena_bytes", _size(2)),
                Column("constants", "constant_bytes", _size(1)),
                Column("dispatches", "dispatches"),
                Column("autotune", "ours_ns", duration),
                Column("ONNX Runtime", "peer_ns", duration),
                Column("ratio", "ratio", ratio),
            ),
            notes=_notes,
        ),
        TableView(
            "Not compared",
            ("name", "exporter"),
            (Column("model, exporter", _name), Column("why", _failure)),
            where=lambda rows: rows.get("failure"),
        ),
    ),
)

__all__ = ["EXPERIMENT", "record_of"]
