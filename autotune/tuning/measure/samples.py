"""Inputs that stand for a model's use: read from files, checked against the model, divided into input sets."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from autotune.errors import InputError, UsageError
from autotune.graph.ir import Array

if TYPE_CHECKING:
    import onnx

    from autotune.runtime.module import Module

LABELS = "labels"
"""The name of an array that has the right classes, unless it is an input's."""
RANDOM_SETS = 32


@dataclass(frozen=True)
class Samples:
    """Input sets, each the inputs of one run by name, and where there are any the labels of each."""

    sets: tuple[dict[str, Array], ...]
    labels: tuple[Array, ...] | None = None

    @classmethod
    def of(cls, arrays: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]]) -> Samples:
        """Return the input sets in arrays, which follow one another along the first axis as :func:`batches` has them.

        Raises InputError for arrays that do not fit the shapes, are no inputs, or labels that cannot be divided.
        """
        unknown = [name for name in arrays if name not in shapes and name != LABELS]
        if unknown:
            raise InputError(
                f"the data has {unknown[0]!r}, which is no input of the model\n  its inputs are {', '.join(shapes)}; "
                f"{LABELS!r} are right classes"
            )
        sets = batches(arrays, shapes)
        if LABELS in shapes or LABELS not in arrays:
            return cls(tuple(sets))
        labels = arrays[LABELS].reshape(-1)
        if labels.dtype.kind not in "iu" or not labels.size or labels.size % len(sets):
            raise InputError(
                f"{LABELS!r} are {labels.size} of {labels.dtype}, not whole numbers, as many for each of the "
                f"{len(sets)} input sets"
            )
        return cls(tuple(sets), tuple(labels.reshape(len(sets), -1)))

    @property
    def arrays(self) -> dict[str, Array]:
        """The input sets as arrays again, by input name."""
        return _joined(self.sets)

    def split(self) -> tuple[Samples, Samples]:
        """Return two halves, to choose by and to judge by: always the same, whatever the order of the data means.

        Raises InputError for a single input set.
        """
        if len(self.sets) < 2:
            raise InputError(
                "an error budget needs at least 2 input sets: one to choose by, another to judge by"
            )
        order = np.random.default_rng(0).permutation(len(self.sets))
        half = (len(order) + 1) // 2
        return self._of(sorted(order[:half])), self._of(sorted(order[half:]))

    def _of(self, which: Sequence[int]) -> Samples:
        labels = None if self.labels is None else tuple(self.labels[i] for i in which)
        return Samples(tuple(self.sets[i] for i in which), labels)


def read_samples(path: Path) -> dict[str, Array]:
    """Return the arrays of an .npz file by name, or those of all .npz files of a folder, one after the other by name.

    Raises:
        UsageError: there is nothing there.
        InputError: a file that is none, or that does not go with the others.
    """
    if not path.is_dir():
        return _read(path)
    files = sorted(path.glob("*.npz"))
    if not files:
        raise UsageError(f"the folder {str(path)!r} has no .npz files")
    found = [_read(file) for file in files]
    for file, arrays in zip(files, found, strict=True):
        if sorted(arrays) != sorted(found[0]):
            raise InputError(f"{file} has {_listed(arrays)}, but {files[0].name} has {_listed(found[0])}")
        for name, array in arrays.items():
            first = found[0][name]
            same = (
                array.shape[1:] == first.shape[1:]
                if array.ndim and first.ndim
                else np.array_equal(array, first)
            )
            if array.dtype != first.dtype or not same:
                raise InputError(
                    f"{file}: {name!r} is {array.dtype} {array.shape}, in {files[0].name} {first.dtype} {first.shape}\n"
                    "  arrays of a folder follow one another along the first axis; single numbers are the same in all"
                )
    return _joined(found)


def _joined(several: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Return arrays of the same names one after the other along the first axis; single numbers are the first's."""
    return {
        name: np.concatenate([arrays[name] for arrays in several]) if first.ndim else first
        for name, first in several[0].items()
    }


def _read(path: Path) -> dict[str, Array]:
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


def random_samples(model: onnx.ModelProto, sets: int = RANDOM_SETS, seed: int = 0) -> dict[str, Array]:
    """Return arrays of random input sets: standard normal floats, zeros for integers.

    Raises InputError for an input of open sizes but the first, of which nothing is known.
    """
    from onnx import helper

    from autotune.runtime.image import TensorSpec
    from autotune.runtime.random_inputs import random_inputs

    specs = []
    for value in _inputs(model):
        dims = _dims(value)
        if not all(dims[1:]):
            raise InputError(
                f"there is no data, and input {value.name!r} leaves sizes open: give data of some size"
            )
        dtype = str(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
        specs.append(TensorSpec(value.name, (sets * max(dims[0], 1), *dims[1:]) if dims else (), dtype))
    return random_inputs(specs, seed)


def batches(samples: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]]) -> list[dict[str, Array]]:
    """Return inputs for each run: arrays have the shapes of the model's inputs, or several of them along
    the first axis.

    Raises:
        InputError: an input is missing, or an array's shape is not that of some runs.
    """
    runs: dict[str, int] = {}
    for name, shape in shapes.items():
        found = _given(name, samples).shape
        first = shape[0] if shape else 1
        if (
            len(found) != len(shape)
            or found[1:] != shape[1:]
            or (shape and (not found[0] or found[0] % first))
        ):
            allowed = f"{shape}, or a multiple of {first} along the first axis" if shape else "()"
            raise InputError(f"calibration: input {name!r} has shape {found}, not {allowed}")
        runs[name] = found[0] // first if shape else 1
    count = max(runs.values(), default=1)
    wrong = [name for name, n in runs.items() if n not in (1, count)]
    if wrong:
        raise InputError(f"calibration: input {wrong[0]!r} has {runs[wrong[0]]} runs, others have {count}")

    def part(name: str, run: int) -> Array:
        array, shape = samples[name], shapes[name]
        if runs[name] == 1:
            return array
        return np.ascontiguousarray(array[run * shape[0] : (run + 1) * shape[0]])

    return [{name: part(name, run) for name in shapes} for run in range(count)]


def fixed_shapes(module: Module) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a model's inputs by name; the model was compiled for fixed ones."""
    return {spec.name: tuple(int(size) for size in spec.shape) for spec in module.inputs}  # type: ignore[arg-type]


def input_shapes(model: onnx.ModelProto, samples: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a model's inputs; sizes that it leaves open are 1 along the first axis, where samples follow
    one another, else those of the samples.

    Raises:
        InputError: there are no samples of an input that leaves sizes open, or they have another rank.
    """
    found = dict[str, tuple[int, ...]]()
    for value in _inputs(model):
        dims = _dims(value)
        if all(dims):
            found[value.name] = tuple(dims)
            continue
        given = _given(value.name, samples).shape
        if len(given) != len(dims):
            raise InputError(
                f"calibration: input {value.name!r} has shape {given}, not {len(dims)} dimensions"
            )
        found[value.name] = tuple(size or (given[i] if i else 1) for i, size in enumerate(dims))
    return found


def open_sizes(model: onnx.ModelProto, samples: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
    """Return those of :func:`input_shapes` of which the model leaves sizes open."""
    closed = {value.name for value in _inputs(model) if all(_dims(value))}
    return {name: shape for name, shape in input_shapes(model, samples).items() if name not in closed}


def _inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Return inputs that are no initialisers."""
    fixed = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in fixed]


def _dims(value: onnx.ValueInfoProto) -> list[int]:
    """Return the sizes of an input, 0 for those that are open."""
    return [int(dim.dim_value) for dim in value.type.tensor_type.shape.dim]


def _listed(arrays: Mapping[str, Array]) -> str:
    return ", ".join(sorted(arrays)) or "no arrays"


def _given(name: str, samples: Mapping[str, Array]) -> Array:
    if name not in samples:
        given = ", ".join(sorted(samples)) or "none"
        raise InputError(f"calibration has no input {name!r}\n  the file has: {given}")
    return samples[name]


def outputs_of(module: Module, sets: Iterable[Mapping[str, Array]]) -> list[dict[str, Array]]:
    """Return the outputs of a module for each input set."""
    return [{name: np.array(array) for name, array in module.run(each).items()} for each in sets]


__all__ = [
    "LABELS",
    "RANDOM_SETS",
    "Samples",
    "batches",
    "fixed_shapes",
    "input_shapes",
    "open_sizes",
    "outputs_of",
    "random_samples",
    "read_samples",
]
