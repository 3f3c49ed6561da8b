"""Many mutants of ONNX models in one command, with counts of how each ended.

::

    python -m tests.frontends.fuzz 10000 -n 2 --record mutants.jsonl

A mutant is imported, compiled and run. It must end in one clear error of ours, or in the answer of ONNX Runtime.
What is allowed beside that:

* ONNX Runtime refuses the model or crashes on it: the answer must be that of our NumPy reference;
* ONNX Runtime answers something else than ONNX's own reference evaluator: one of the two must agree with us;
* the model has weights or attributes that are NaN, infinite or of more than 1e30: elements may differ that are not
  finite in one of the answers, as they depend on the order of operations;
* a number that its integer type does not hold: ours is the nearest that it holds, theirs its smallest.

Mutants run in processes with limits of memory and time, so that a crash is a finding like any other. Each finished
mutant appends a line to the record, and a finding is written beside it; called again with the same record, the
command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import select
import signal
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from autotune.compiler import compile_in_detail
from autotune.compiler.request import CompileRequest
from autotune.errors import AutotuneError, BuildError, GraphError, ModelImportError, UsageError
from autotune.frontends.onnx.importer import load
from autotune.graph import evaluate
from autotune.graph.ir import Graph
from autotune.runtime.counted import CountedOutput, parts
from autotune.runtime.module import Module
from tests.frontends.mutants import mutant, seeds

MEMORY = 6 << 30
SECONDS = 120
BLOCK = 25
EXTREME = 1e30
CLEAR = (ModelImportError, GraphError, UsageError, BuildError)
"""The errors that a user may see of a model: it is wrong, its inputs are, or it is too large for this machine."""
FINE = ("refused", "answered", "as reference")
"""Endings that are no findings: a clear error, ONNX Runtime's answer, or one that is allowed to differ from it."""
TOLERANCE = {"float16": 2e-2, "bfloat16": 1e-1, "float32": 2e-3, "float64": 1e-5}

Arrays = dict[str, Any]


def feed_of(graph: Graph, seed: int) -> Arrays:
    """Random inputs; small integers, as they may be indices."""
    rng = np.random.default_rng(seed)
    feed = {}
    for name in graph.inputs:
        found = graph.type_of(name)
        if np.dtype(found.dtype).kind in "iub":
            feed[name] = np.asarray(rng.integers(0, 2, found.shape)).astype(found.dtype)
        else:
            feed[name] = np.asarray(rng.standard_normal(found.shape)).astype(found.dtype)
    return feed


def ours(graph: Graph, feed: Arrays) -> Arrays:
    """The compiled model's outputs."""
    with Module(
        compile_in_detail(CompileRequest(graph, target="host", threads=2)).image, threads=2
    ) as module:
        results = module.run(feed)
    return {name: results[name] for name in answers(graph)}


def answers(graph: Graph) -> list[str]:
    """The outputs that the model has itself: those that say how long others are, the import adds."""
    lengths = {length for _, _, length in graph.counted}
    return [name for number, name in enumerate(graph.outputs) if number not in lengths]


def by_reference(graph: Graph, feed: Arrays) -> Arrays:
    """Return the NumPy reference's answers, each output as long as it is."""
    results = evaluate.run(graph, feed)
    whole = [np.asarray(results[name]) for name in graph.outputs]
    cut = dict(zip(graph.outputs, parts(whole, map(CountedOutput._make, graph.counted)), strict=True))
    return {name: cut[name] for name in answers(graph)}


def agree(found: Arrays, wanted: Arrays, *, finite_only: bool = False) -> bool:
    """Return whether outputs are the same within the tolerance of their type, over the largest magnitude."""
    return all(_agree(found[name], np.asarray(wanted[name]), finite_only) for name in found)


def _agree(found: Any, wanted: Any, finite_only: bool = False) -> bool:
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return False
    if found.dtype.name not in TOLERANCE or not found.size:
        return bool(((found == wanted) | _out_of_range(found, wanted)).all())
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(b)
    if finite_only:
        finite &= np.isfinite(a)
    elif not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(a[finite]).all():
        return False
    scale = np.abs(b[finite]).max(initial=1.0)
    return bool((np.abs(a[finite] - b[finite]) <= TOLERANCE[found.dtype.name] * scale).all())


def _out_of_range(found: Any, wanted: Any) -> Any:
    """Return a mask: ours is the nearest number of an integer type, theirs the one that x86 gives for all others."""
    if found.dtype.kind != "i":
        return np.zeros(found.shape, np.bool_)
    limits = np.iinfo(found.dtype)
    return ((found == limits.min) | (found == limits.max)) & (wanted == limits.min)


def verdict_of(data: bytes, seed: int, say: Any) -> tuple[str, str]:
    """Return how a mutant ended, and what is to be known of it; ``say`` hears each stage before it begins."""
    try:
        graph = load(data)
        try:
            feed = feed_of(graph, seed)
        except MemoryError:
            return "refused", "no memory for inputs"
        found = ours(graph, feed)
    except CLEAR as error:
        late = "" if isinstance(error, ModelImportError) else f": {str(error).splitlines()[0]}"
        return "refused", f"{type(error).__name__}{late}"
    except Exception as error:  # noqa: BLE001  # what a user must never see
        last = traceback.extract_tb(error.__traceback__)[-1]
        return "traceback", f"{Path(last.filename).name}:{last.lineno} {type(error).__name__}: {error}"
    say("peer")
    for peer in (_by_onnxruntime, _by_onnx):
        expected = peer(data, graph, feed)
        if isinstance(expected, dict) and agree(found, expected):
            return ("answered", "") if peer is _by_onnxruntime else ("as reference", "onnx")
        if peer is _by_onnxruntime and not isinstance(expected, dict):
            say("reference")
            return _by_numpy(graph, feed, found, str(expected))
        if isinstance(expected, dict) and _is_extreme(graph) and agree(found, expected, finite_only=True):
            return "as reference", "not finite"
    return "wrong", _difference(found, _by_onnxruntime(data, graph, feed))


def _is_extreme(graph: Graph) -> bool:
    """Return whether weights or attributes are not finite, or close to it."""
    values = [v for node in graph.nodes for v in node.attrs.values() if isinstance(v, float)]
    values += [np.abs(a.astype(np.float64)).max() for a in graph.constants.values() if a.size]
    return not all(abs(value) < EXTREME for value in values)


def _by_onnxruntime(data: bytes, graph: Graph, feed: Arrays) -> Arrays | str:
    try:
        import onnxruntime
    except ImportError:
        return "not installed"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        return dict(zip(answers(graph), session.run(None, feed), strict=True))
    except Exception as error:  # noqa: BLE001  # its exceptions have no common base
        return str(error)


def _by_onnx(data: bytes, graph: Graph, feed: Arrays) -> Arrays | str:
    from onnx.reference import ReferenceEvaluator

    try:
        return dict(zip(answers(graph), ReferenceEvaluator(data).run(None, feed), strict=True))
    except Exception as error:  # noqa: BLE001  # whatever its operators raise
        return str(error)


def _by_numpy(graph: Graph, feed: Arrays, found: Arrays, why: str) -> tuple[str, str]:
    """The verdict where ONNX Runtime gives no answer."""
    try:
        expected = by_reference(graph, feed)
    except AutotuneError as error:
        return "wrong", f"the reference refuses: {error}"
    if agree(found, expected):
        return "as reference", "onnxruntime refuses"
    if _is_extreme(graph) and agree(found, expected, finite_only=True):
        return "as reference", "not finite"
    return "wrong", f"not as NumPy: {_difference(found, expected)}; onnxruntime: {why[:200]}"


def _difference(found: Arrays, expected: Any) -> str:
    wrong = [name for name in found if not _agree(found[name], np.asarray(expected[name]))]
    shown = [(found[n], np.asarray(expected[n])) for n in wrong[:1]]
    return "; ".join(
        f"{a.dtype}{a.shape} {a.reshape(-1)[:6]} for {b.dtype}{b.shape} {b.reshape(-1)[:6]}" for a, b in shown
    )


def _work(first: int, last: int, pipe: int) -> None:
    """The child: a line for each mutant, and for each stage of it."""
    soft = MEMORY + int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (soft, soft))
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    for seed in range(first, last):

        def say(stage: str, seed: int = seed) -> None:
            os.write(pipe, json.dumps({"seed": seed, "stage": stage}).encode() + b"\n")

        say("ours")
        verdict, detail = verdict_of(mutant(seed, seeds()), seed, say)
        line = {"seed": seed, "verdict": verdict, "detail": detail[:600]}
        os.write(pipe, json.dumps(line).encode() + b"\n")


def _lines(pipe: int, seconds: float) -> Iterator[dict[str, Any] | None]:
    """Return the child's next line; None where it says nothing for so long."""
    pending = b""
    while True:
        if not select.select([pipe], [], [], seconds)[0]:
            yield None
            return
        chunk = os.read(pipe, 1 << 16)
        if not chunk:
            return
        *lines, pending = (pending + chunk).split(b"\n")
        yield from map(json.loads, lines)


def run_block(first: int, last: int) -> Iterator[dict[str, Any]]:
    """The verdicts of the mutants first..last; a process that ends is followed by another."""
    while first < last:
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.setpgid(0, 0)
            os.close(read)
            try:
                _work(first, last, write)
            finally:
                os._exit(0)
        os.close(write)
        stage, hung = "ours", False
        for line in _lines(read, SECONDS):
            hung = line is None
            if line is not None and "verdict" in line:
                first = line["seed"] + 1
                yield line
            elif line is not None:
                stage = line["stage"]
        os.close(read)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if first < last:
            ended = "timeout" if hung else f"ended with {status}"
            verdict = ("timeout" if hung else "crash") if stage == "ours" else "as reference"
            yield {"seed": first, "verdict": verdict, "detail": f"{stage}: {ended}"}
            first += 1


def read_record(record: Path) -> dict[int, dict[str, Any]]:
    """The verdicts of a record by seed; a line cut short by an interruption does not count."""
    found = {}
    for text in record.read_text(encoding="utf-8").splitlines() if record.exists() else ():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue
        found[line["seed"]] = line
    return found


def _share(worker: int, workers: int, blocks: list[range], record: Path) -> None:
    """One of ``workers`` processes: every so-manyth block, each verdict appended to the record."""
    for block in blocks[worker::workers]:
        for line in run_block(block.start, block.stop):
            with record.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            if line["verdict"] not in FINE:
                (record.parent / f"mutant_{line['seed']}.onnx").write_bytes(mutant(line["seed"], seeds()))


def campaign(mutants: int, workers: int, record: Path, first: int) -> dict[int, dict[str, Any]]:
    """Run the mutants that the record lacks; returns the verdicts of all."""
    seeds()
    known = read_record(record)
    wanted = range(first, first + mutants)
    blocks = [
        range(s, e)
        for start in wanted[::BLOCK]
        for s, e in _missing(range(start, min(start + BLOCK, wanted.stop)), known)
    ]
    children = []
    for worker in range(workers):
        child = os.fork()
        if not child:
            _share(worker, workers, blocks, record)
            os._exit(0)
        children.append(child)
    started, alive = time.monotonic(), set(children)
    while alive:
        time.sleep(1)
        alive -= {child for child in alive if os.waitpid(child, os.WNOHANG)[0]}
        done = len(read_record(record)) - len(known)
        if done and int(time.monotonic() - started) % 60 == 0:
            print(f"{done} mutants after {time.monotonic() - started:.0f} s", flush=True)
    found = read_record(record)
    return {seed: found[seed] for seed in wanted if seed in found}


def _missing(block: range, known: dict[int, Any]) -> Iterator[tuple[int, int]]:
    """Runs of seeds without a verdict."""
    start = None
    for seed in [*block, block.stop]:
        lacks = seed < block.stop and seed not in known
        if lacks and start is None:
            start = seed
        elif not lacks and start is not None:
            yield start, seed
            start = None


def report(found: dict[int, dict[str, Any]]) -> str:
    """Counts, then each finding."""
    counts = Counter(line["verdict"] for line in found.values())
    details = Counter(
        f"{line['verdict']} ({line['detail']})" for line in found.values() if line["verdict"] in FINE
    )
    findings = [line for line in found.values() if line["verdict"] not in FINE]
    return "\n".join(
        [
            f"{len(found)} mutants: " + ", ".join(f"{n} {v}" for v, n in counts.most_common()),
            *(f"  {n} {text}" for text, n in details.most_common()),
            f"findings: {len(findings)}",
            *(f"  mutant {line['seed']}: {line['verdict']}: {line['detail']}" for line in findings),
        ]
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("mutants", type=int)
    parser.add_argument("-n", "--workers", type=int, default=1, help="processes at a time")
    parser.add_argument("--record", type=Path, help="file to go on from")
    parser.add_argument("--first", type=int, default=1_000_000, help="first seed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        record = options.record or Path(folder) / "mutants.jsonl"
        found = campaign(options.mutants, options.workers, record, options.first)
    print(report(found))
    raise SystemExit(1 if any(line["verdict"] not in FINE for line in found.values()) else 0)


if __name__ == "__main__":
    main()
