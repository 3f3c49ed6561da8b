"""Requests as files: inputs are read from NumPy's array files, outputs are written to such."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InputError, UsageError
from autotune.foreign import file_name
from autotune.runtime.image import TensorSpec
from autotune.runtime.random_inputs import random_inputs
from autotune.suggest import listing

if TYPE_CHECKING:
    from autotune.runtime.module import Module


def read_arrays(texts: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Return arrays by name of texts such as ``x=x.npy``; raises UsageError for one that is given twice or is none."""
    given: dict[str, NDArray[Any]] = {}
    for text in texts:
        name, array = _read(text)
        if name in given:
            raise UsageError(f"--input {name} is given twice")
        given[name] = array
    return given


def _read(text: str) -> tuple[str, NDArray[Any]]:
    name, equals, path = text.partition("=")
    if not equals or not name or not path:
        raise UsageError(f"--input {text!r} is not NAME=FILE.npy")
    try:
        return name, np.load(path, allow_pickle=False)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except (EOFError, MemoryError, ValueError) as error:
        raise UsageError(f"{path} is not a NumPy array file (.npy) of numbers, or it is damaged") from error


def request_inputs(
    specs: Sequence[TensorSpec], given: Mapping[str, Any], random: bool, seed: int
) -> dict[str, Any]:
    """Return arrays for all inputs: given, else random; raises InputError for a missing one."""
    names = [spec.name for spec in specs]
    unknown = [name for name in given if name not in names]
    if unknown:
        known = listing(unknown[0], names)
        raise InputError(f"the model has no input {unknown[0]!r}; its inputs are {known}")
    arrays = dict(given)
    missing = [spec for spec in specs if spec.name not in arrays]
    if missing and not random:
        needed = "; ".join(str(spec) for spec in missing)
        raise InputError(
            f"no value for the input {needed}; give --input {missing[0].name}=FILE.npy, or --random"
        )
    for spec in specs:
        array = arrays.get(spec.name)
        if spec.dtype == "bfloat16" and array is not None and array.dtype == "V2":
            arrays[spec.name] = array.view(spec.dtype)  # a file has no name for it
    return arrays | random_inputs(missing, seed)


def request_specs(module: Module, sizes: Mapping[str, Any]) -> tuple[TensorSpec, ...]:
    """Return the inputs of a request: of the given sizes, or the largest, where an artifact has several. Raises
    UsageError for a size that is not a whole number by the name of a dimension."""
    for name, size in sizes.items():
        if name not in module.sizes or not isinstance(size, int):
            known = ", ".join(f"{symbol}={compiled[-1]}" for symbol, compiled in module.sizes.items())
            raise UsageError(f"--shape {name}: this artifact has sizes such as {known}")
    return module.specs(sizes)


def save_arrays(outputs: Mapping[str, NDArray[Any]], folder: Path) -> None:
    """Write ``NAME.npy`` for each output; raises UsageError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = [file_name(name, "output") for name in outputs]
        for number, (file, array) in enumerate(zip(files, outputs.values(), strict=True)):
            again = files[:number].count(
                file
            )  # other names may be this one without what no file is called by
            np.save(folder / f"{file}{f'.{again}' if again else ''}.npy", array)
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror or error}") from error


def array_facts(array: NDArray[Any]) -> dict[str, Any]:
    """Return shape, dtype and range of an output, for a JSON document."""
    return {
        "shape": list(array.shape),
        "dtype": str(array.dtype),
        "min": float(array.min()) if array.size else None,
        "max": float(array.max()) if array.size else None,
    }


def facts_line(name: str, facts: Mapping[str, Any]) -> str:
    """Return the same as a line.

    >>> facts_line("y", {"shape": [2, 3], "dtype": "float32", "min": 0.0, "max": 1.5})
    'y: float32 2×3, from 0 to 1.5'
    """
    shape = "×".join(map(str, facts["shape"])) or "scalar"
    span = "" if facts["min"] is None else f", from {facts['min']:.6g} to {facts['max']:.6g}"
    return f"{name}: {facts['dtype']} {shape}{span}"


def timed(module: Module, arrays: Mapping[str, Any], repeat: int) -> dict[str, Any]:
    """Return the latencies of so many runs, after runs that are not counted, for a JSON document."""
    times = module.time(arrays, warmup=min(10, repeat), repeat=repeat)
    return {"min_ns": float(times.min()), "median_ns": float(np.median(times)), "repeat": repeat}


__all__ = [
    "array_facts",
    "facts_line",
    "read_arrays",
    "request_inputs",
    "request_specs",
    "save_arrays",
    "timed",
]
