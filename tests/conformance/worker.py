"""Runs ONNX's own tests, one a request, by autotune or by ONNX Runtime.

Run as a script by any Python that has onnx and the system. Arguments: ``autotune`` or ``onnxruntime``, and the folder
to import autotune from or ``-``. Requests and answers are lines of JSON: ``{"test": "node/test_abs"}`` is answered by
``{"passed": true, "why": "", "values": []}``; ``values`` are inputs that had to be known when the model was compiled.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

_WHY = 400
"""Characters of a reason."""
_MOST_VALUES = 8
"""An attempt each: so many times inputs are found to be parameters."""

Run = Callable[[Any, "dict[str, Any]"], "tuple[list[Any], list[str]]"]
"""A model and its inputs by name -> its outputs, and which inputs had to be known when it was compiled."""


def main() -> None:
    """Answer requests until standard input ends; standard output is for the answers only."""
    system, folder = sys.argv[1:]
    if folder != "-":
        sys.path.insert(0, folder)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    run = system_of(system)

    def answer(what: Mapping[str, Any]) -> None:
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    answer({"ready": True})
    for line in sys.stdin:
        name = json.loads(line)["test"]
        answer(judge(load_tests(name.partition("/")[0])[name], run))


def system_of(name: str) -> Run:
    """Return how a system runs a model: ``autotune`` or ``onnxruntime``."""
    return {"autotune": _autotune, "onnxruntime": _onnxruntime}[name]()


@cache
def load_tests(kind: str) -> dict[str, Any]:
    """ONNX's tests of a kind, by ``kind/name``; those of nodes are worked out, in seconds."""
    from onnx.backend.test import loader

    return {f"{kind}/{test.name}": test for test in loader.load_model_tests(kind=kind)}


def judge(test: Any, run: Run) -> dict[str, Any]:
    """Return whether all data sets of a test give what they should, and why not."""
    import onnx

    values: list[str] = []
    try:
        model = test.model or onnx.load(os.path.join(test.model_dir, "model.onnx"))
        for given, wanted in test.data_sets or _data_sets(model, Path(test.model_dir)):
            stored = {tensor.name for tensor in model.graph.initializer}
            names = [value.name for value in model.graph.input if value.name not in stored]
            given, wanted = [list(map(_plain, each)) for each in (given, wanted)]
            found, values = run(model, dict(zip(names, given, strict=False)))
            why = _difference(found, wanted, test.rtol, test.atol)
            if why:
                return {"passed": False, "why": why, "values": values}
    except Exception as error:  # noqa: BLE001 - whatever a test raises is how it fails
        first = " ".join(f"{type(error).__name__}: {error}".split())
        return {"passed": False, "why": first[:_WHY], "values": values}
    return {"passed": True, "why": "", "values": values}


def _plain(value: Any) -> Any:
    """A value of a data set; some tests keep tensors as ONNX stores them."""
    import onnx
    from onnx import numpy_helper

    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _data_sets(model: Any, folder: Path) -> list[tuple[list[Any], list[Any]]]:
    import onnx
    from onnx import numpy_helper

    def read(path: Path, declared: Any) -> Any:
        kind = declared.type.WhichOneof("value")
        if kind == "sequence_type":
            return numpy_helper.to_list(onnx.SequenceProto.FromString(path.read_bytes()))
        if kind == "optional_type":
            return numpy_helper.to_optional(onnx.OptionalProto.FromString(path.read_bytes()))
        return numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))

    def read_all(place: Path, what: str, declared: Sequence[Any]) -> list[Any]:
        paths = [place / f"{what}_{i}.pb" for i in range(len(declared))]
        return [read(p, d) for p, d in zip(paths, declared, strict=True) if p.exists()]

    places = sorted(folder.glob("test_data_set_*"))
    graph = model.graph
    return [(read_all(p, "input", graph.input), read_all(p, "output", graph.output)) for p in places]


def _difference(found: Sequence[Any], wanted: Sequence[Any], rtol: float, atol: float) -> str:
    """Return what is wrong about the results, or nothing; tolerances are those of ONNX's own runner."""
    import numpy as np

    if len(found) != len(wanted):
        return f"{len(found)} outputs, not {len(wanted)}"
    for index, (got, want) in enumerate(zip(found, wanted, strict=True)):
        if isinstance(want, list):
            why = (
                _difference(got, want, rtol, atol)
                if isinstance(got, list)
                else "no sequence where one is wanted"
            )
            if why:
                return why
            continue
        if want is None or got is None:
            if want is not got:
                return f"output {index} is {got!r}, not {want!r}"
            continue
        got, want = np.asarray(got), np.asarray(want)
        if got.dtype != want.dtype or got.shape != want.shape:
            return f"output {index} is {got.dtype}{list(got.shape)}, not {want.dtype}{list(want.shape)}"
        if want.dtype.kind in "OUST":
            same = got.tolist() == want.tolist()
        elif want.dtype.kind in "biu":
            same = bool((got == want).all())
        else:
            wide = np.complex128 if want.dtype.kind == "c" else np.float64
            same = np.allclose(got.astype(wide), want.astype(wide), rtol, atol, equal_nan=True)
        if not same:
            return f"output {index} has other numbers"
    return ""


def _autotune() -> Run:
    import numpy as np

    import autotune
    from autotune.errors import UnknownParameterError
    from autotune.frontends.onnx.importer import load

    def compiled(model: Any, given: dict[str, Any]) -> tuple[Any, list[str]]:
        values: dict[str, Any] = {}
        for _ in range(_MOST_VALUES):
            open_ = {name: a for name, a in given.items() if name not in values}
            shapes = {name: a.shape for name, a in open_.items() if isinstance(a, np.ndarray) and a.size}
            try:
                return autotune.compile(load(model, shapes=shapes, values=values), threads=1), list(values)
            except UnknownParameterError as error:
                more = {name: given[name] for name in error.inputs if name in given}
                if not more.keys() - values.keys():
                    raise
                values.update(more)
        raise RuntimeError("ever more inputs are found to be parameters")

    def run(model: Any, given: dict[str, Any]) -> tuple[list[Any], list[str]]:
        module, values = compiled(model, given)
        found = module.run({name: array for name, array in given.items() if name not in values})
        return [found[output.name] for output in model.graph.output], values

    return run


def _onnxruntime() -> Run:
    import onnxruntime

    def run(model: Any, given: dict[str, Any]) -> tuple[list[Any], list[str]]:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return session.run(None, given), []

    return run


if __name__ == "__main__":
    main()
