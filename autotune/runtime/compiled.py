"""A compiled model as values: cases by sizes and target, each a program of segments on devices."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import ArtifactError, InputError
from autotune.runtime.artifacts.hashes import DATA, hash_of
from autotune.runtime.axes import Axes, axis, axis_text, extents, parse_axis, shape_text, symbols_of
from autotune.runtime.image import ModuleImage, TensorSpec
from autotune.runtime.programs.device_program import DeviceProgram, of_image
from autotune.runtime.programs.verify_program import verify_steps
from autotune.runtime.targets import label
from autotune.target import Target


@dataclass(frozen=True)
class SizedTensor:
    """An input or output; ``axes`` as :func:`autotune.runtime.axes.axis_text` writes them."""

    name: str
    dtype: str
    axes: tuple[str, ...]

    @property
    def shape(self) -> Axes:
        """Its axes, with the factors that grow."""
        return tuple(map(parse_axis, self.axes))

    def spec(self, sizes: Mapping[str, int]) -> TensorSpec:
        """Return the tensor for such sizes."""
        return TensorSpec(self.name, extents(self.shape, sizes), self.dtype)

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{shape_text(self.shape)}"


@dataclass(frozen=True)
class Case:
    """A program for one bucket of sizes and one target.

    After the model's inputs the program takes the request's sizes of ``given`` factors, int64. ``outputs`` are the axes
    of its outputs; symbols are factors of those of which a request may have less.
    """

    sizes: Mapping[str, int]
    given: tuple[str, ...]
    outputs: tuple[tuple[str, ...], ...]
    program: DeviceProgram

    @property
    def target(self) -> Target | None:
        """The machine that it is for; None where its program names devices, which say it."""
        image = self.program.image
        return None if image is None else image.target


@dataclass(frozen=True, eq=False)
class Compiled:
    """A compiled model: cases by sizes and target, each a program of segments on devices.

    Of each target there is a case for every combination of the shape buckets, one without dynamic shapes; a request
    of sizes from ``least`` up to those of the largest bucket takes the smallest that fits; those of a symbol in
    ``steps`` go up by so much. A plain model is one case of one segment.
    """

    name: str
    inputs: tuple[SizedTensor, ...]
    outputs: tuple[str, ...]
    least: Mapping[str, int]
    cases: tuple[Case, ...]
    steps: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def of(model: ModuleImage | DeviceProgram) -> Compiled:
        """Return the model of one case."""
        program = model if isinstance(model, DeviceProgram) else of_image(model)
        inputs = tuple(SizedTensor(spec.name, spec.dtype, fixed(spec)) for spec in program.inputs)
        case = Case({}, (), tuple(map(fixed, program.outputs)), program)
        return Compiled(program.name, inputs, tuple(spec.name for spec in program.outputs), {}, (case,))

    @staticmethod
    def joined(models: Sequence[Compiled]) -> Compiled:
        """Return one model of those of several targets, with equal constants once.

        Raises ArtifactError where they are not one model.
        """
        signatures = {(m.inputs, m.outputs, tuple(m.least.items()), tuple(m.steps.items())) for m in models}
        if len(signatures) != 1:
            raise ArtifactError("programs with different inputs or outputs are not one model")
        cases = [case for model in models for case in model.cases]
        images = with_shared_constants([image for case in cases for image in case.program.images])
        found = replace(models[0], cases=tuple(with_images(cases, images)))
        found.verify()
        return found

    @property
    def targets(self) -> tuple[Target | None, ...]:
        """The targets, each once."""
        return tuple(dict.fromkeys(case.target for case in self.cases))

    @property
    def images(self) -> tuple[ModuleImage, ...]:
        """The images of all cases."""
        return tuple(image for case in self.cases for image in case.program.images)

    def of_target(self, wanted: Target | None) -> Compiled:
        """Return the cases of one target."""
        return replace(self, cases=tuple(case for case in self.cases if case.target == wanted))

    @cached_property
    def sizes(self) -> dict[str, list[int]]:
        """Sizes of each symbol that something was compiled for, ascending."""
        return sizes_of([case.sizes for case in self.cases], self.least)

    def bucket_of(self, real: Mapping[str, int]) -> int:
        """Return the number of the bucket that a request of such sizes takes. Raises InputError for
        sizes out of range."""
        chosen = []
        for symbol, compiled in self.sizes.items():
            at = bisect_left(compiled, real[symbol])
            if at == len(compiled) or real[symbol] < self.least[symbol]:
                raise InputError(
                    f"{self.name!r} takes {symbol} from {self.least[symbol]} to {compiled[-1]}, got {real[symbol]}; "
                    f"compile it for more: --shape {symbol}={min(self.least[symbol], real[symbol])}.."
                    f"{max(compiled[-1], real[symbol])}"
                )
            step = self.steps.get(symbol, 1)
            if (real[symbol] - self.least[symbol]) % step:
                raise InputError(
                    f"{self.name!r} takes {symbol} from {self.least[symbol]} to {compiled[-1]} in steps of {step}, got "
                    f"{real[symbol]}"
                )
            chosen.append(compiled[at])
        return self._numbers[tuple(chosen)]

    @cached_property
    def _numbers(self) -> dict[tuple[int, ...], int]:
        """Return the number of each case of one target, by its sizes in the order of ``least``."""
        return {tuple(case.sizes[symbol] for symbol in self.least): i for i, case in enumerate(self.cases)}

    def verify(self) -> None:
        """Raise ArtifactError where cases do not fit each other or their programs, or a program is inconsistent."""
        for case in self.cases:
            verify_steps(case.program)
        symbols = {symbol for tensor in self.inputs for symbol in symbols_of(tensor.shape)}
        targets = self.targets
        labels = [label(target) if target else "devices that are named" for target in targets]
        if not targets or len({*labels}) < len(labels) or (None in targets and len(targets) > 1):
            raise ArtifactError(
                f"a model of several targets has each once, not {', '.join(labels) or 'none'}"
            )
        if {*self.least} != symbols or not {*self.steps} <= symbols:
            raise ArtifactError(
                "a model with dynamic shapes has a case a bucket, and buckets for each dynamic size"
            )
        for target in targets:
            cases = self.of_target(target).cases
            every = sizes_of([case.sizes for case in cases], self.least)
            wanted = [dict(zip(every, each, strict=True)) for each in product(*every.values())]
            if [*map(dict, (case.sizes for case in cases))] != wanted:
                raise ArtifactError("a model has a case for every combination of its sizes, each once")
            for case in cases:
                self._check_case(case, symbols)

    def _check_case(self, case: Case, symbols: set[str]) -> None:
        own = tuple(tensor.spec(case.sizes) for tensor in self.inputs)
        program = case.program
        more = tuple((spec.shape, spec.dtype) for spec in program.inputs[len(own) :])
        outputs = [tuple(map(parse_axis, axes)) for axes in case.outputs]
        factors = {symbol for axes in outputs for symbol in symbols_of(axes)}
        if (
            not symbols_of([case.given]) <= symbols
            or program.inputs[: len(own)] != own
            or more != (((), "int64"),) * len(case.given)
            or tuple(spec.name for spec in program.outputs) != self.outputs
            or not factors <= symbols
            or [extents(axes, case.sizes) for axes in outputs] != [spec.shape for spec in program.outputs]
        ):
            raise ArtifactError(f"the program for {dict(case.sizes)} is not one of this model")


def fixed(spec: TensorSpec) -> tuple[str, ...]:
    """Return the axes of a tensor without dynamic sizes."""
    return tuple(axis_text(axis(extent)) for extent in spec.shape)


def with_images(cases: Sequence[Case], images: Sequence[ModuleImage]) -> list[Case]:
    """Return cases with other images, which are those of all of them in order."""
    rest = iter(images)
    return [
        replace(case, program=replace(case.program, images=tuple(next(rest) for _ in case.program.images)))
        for case in cases
    ]


def with_shared_constants(images: Sequence[ModuleImage]) -> tuple[ModuleImage, ...]:
    """Return the images with equal constants as one array, as those of an artifact are."""
    found: dict[tuple[tuple[int, ...], str, str], NDArray[Any]] = {}

    def shared(array: NDArray[Any]) -> NDArray[Any]:
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        return found.setdefault((array.shape, str(array.dtype), hash_of(DATA, data)), array)

    return tuple(replace(image, constants=tuple(map(shared, image.constants))) for image in images)


def sizes_of(buckets: Sequence[Mapping[str, int]], symbols: Mapping[str, int]) -> dict[str, list[int]]:
    """Return sizes of each symbol that there are buckets of, ascending."""
    return {symbol: sorted({sizes.get(symbol, 0) for sizes in buckets}) for symbol in symbols}


__all__ = [
    "Case",
    "Compiled",
    "SizedTensor",
    "fixed",
    "sizes_of",
    "with_images",
    "with_shared_constants",
]
