"""Library kernels: registered, called for blocks of a product, and looked up again when code is loaded."""

from __future__ import annotations

import dataclasses
import doctest
import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import numba
import numpy as np
import pytest
from numba import types

from autotune import library, te
from autotune.codegen.jit import LoadedCode
from autotune.errors import ArtifactError, BuildError, KnobError, ScheduleError, UsageError
from autotune.functions.function import build
from autotune.library import blas
from autotune.runtime.artifacts import artifact
from autotune.schedule.knob import Value
from autotune.schedule.trace import Trace
from autotune.te.library_calls import library_matmul
from search_spaces import spaces
from search_spaces.space import Space
from tests.search_spaces import workloads as make

pytestmark = pytest.mark.registers

PLAIN: Mapping[str, Value] = {"kernel": "blas", "pack": False, "tail": "overlap", "unroll": 1}
BLOCKS: dict[str, Mapping[str, Value]] = {
    "whole": {"row_block": 0, "vector_block": 0, "parallel": False},
    "rows": {"rows": 4, "row_block": 2, "vector_block": 0},
    "one row": {"rows": 1, "row_block": 1, "vectors": 2, "vector_block": 1},
    "both": {"rows": 5, "row_block": 1, "vectors": 1, "vector_block": 1, "block_order": "vector"},
}
_FLOATS = types.CPointer(types.float32)


@numba.cfunc(types.void(_FLOATS, _FLOATS, _FLOATS, types.CPointer(types.int64)))  # type: ignore[untyped-decorator]
def plain(out, a, b, layout):  # type: ignore[no-untyped-def]
    for i in range(layout[0]):
        for j in range(layout[1]):
            total = types.float32(0)
            for r in range(layout[2]):
                total += a[i * layout[5] + r * layout[6]] * b[r * layout[7] + j * layout[8]]
            out[i * layout[3] + j * layout[4]] = total


@pytest.fixture
def registered() -> Iterator[None]:
    library.register("plain", plain)
    yield
    library.unregister("plain")


def check(space: Space, config: Mapping[str, Value]) -> None:
    for computed, expected in zip(*make.run(space, config), strict=True):
        np.testing.assert_allclose(computed, expected, rtol=2e-4, atol=2e-4, err_msg=str(config))


@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("relu", [False, True])
def test_blas_computes_blocks(blocks: str, relu: bool) -> None:
    space = spaces.space_for(make.matmul(37, 23, 50, relu=relu), make.host())
    check(space, {**space.default(), **PLAIN, **BLOCKS[blocks]})


def test_blas_computes_batches_and_float64() -> None:
    space = spaces.space_for(make.matmul(20, 16, 20, batch=(2, 3), constant=False, relu=False), make.host())
    check(space, {**space.default(), **PLAIN})
    assert library.kernels("matmul", "float64") == ("blas",)
    assert blas.address("float64") != blas.address("float32")


def test_a_function_of_ones_own_is_a_value_of_the_knob(registered: None) -> None:
    space = spaces.space_for(make.matmul(37, 23, 50), make.host())
    assert ("tiles", "blas", "plain") in [knob.values for knob in space.knobs]
    check(space, {**space.default(), **PLAIN, **BLOCKS["both"], "kernel": "plain"})


def test_the_default_needs_no_library() -> None:
    from cost_models import analytic

    space = spaces.space_for(make.matmul(128, 128, 128), make.host())
    assert analytic.default_config(space)["kernel"] == "tiles"


def test_calls_for_small_blocks_are_predicted_slow() -> None:
    """A library packs its operands at each call."""
    from cost_models import analytic

    space = spaces.space_for(make.matmul(1024, 1024, 1024), make.AVX512)
    configs = [{**space.default(), **PLAIN, "k_block": 0, **BLOCKS[blocks]} for blocks in ("whole", "both")]
    whole, small = analytic.predict(space, configs)
    assert small > 3 * whole


def test_what_a_library_kernel_does_not_read_keeps_one_value() -> None:
    space = spaces.space_for(make.matmul(37, 23, 50), make.host())
    with pytest.raises(KnobError, match="a library kernel does not use it"):
        space.check({**space.default(), **PLAIN, "pack": True})


def test_small_products_and_other_types_have_no_such_knob() -> None:
    assert "kernel" not in spaces.space_for(make.matmul(8, 64, 64), make.host()).names
    assert "kernel" not in spaces.space_for(make.typed_matmul("int32"), make.host()).names


def test_traces_with_calls_replay() -> None:
    workload = make.matmul(37, 23, 50, relu=False)
    space = spaces.space_for(workload, make.host())
    trace = space.schedule({**space.default(), **PLAIN, **BLOCKS["rows"]}).trace
    again = Trace.from_json(trace.to_json())
    assert again.to_json() == trace.to_json()
    program = workload.program()
    schedule = te.create_schedule([tensor.op for tensor in program.outputs])
    again.apply(schedule)
    assert schedule.trace.to_json() == trace.to_json()


def test_a_name_that_is_no_call_is_refused() -> None:
    with pytest.raises(ScheduleError, match="no library call 'matmul"):
        te.intrinsic_named("matmul.blas.int8.2x2x2")


def test_rows_may_lie_apart_but_not_elements() -> None:
    A, B = te.placeholder((16, 16), name="A"), te.placeholder((16, 16), name="B")
    k = te.reduce_axis((0, 16), name="k")
    C = te.compute((16, 16), lambda i, j: te.sum(A[i, k] * B[j, k], axis=k), name="C")
    s = te.create_schedule(C.op)
    with pytest.raises(ScheduleError):
        s[C].tensorize(s[C].op.axis[0], library_matmul("blas", "float32", 16, 16, 16))


@pytest.fixture
def saved(registered: None, tmp_path: Path) -> Path:
    workload = make.matmul(20, 16, 32, constant=False, relu=False)
    space = spaces.space_for(workload, make.host())
    program = workload.program()
    config = {**space.default(), **PLAIN, "kernel": "plain"}
    function = build(space.apply(program, config), program.args, threads=1)
    artifact.save(function.module.image, tmp_path / "m.atm")
    return tmp_path / "m.atm"


def test_the_manifest_lists_what_is_called(saved: Path) -> None:
    manifest = json.loads(zipfile.ZipFile(saved).read("manifest.json"))
    assert manifest["images"][0]["libraries"] == ["autotune_library_plain.float32"]
    assert artifact.load_image(saved).objects


def test_an_artifact_whose_kernel_is_missing_is_refused(saved: Path) -> None:
    image = artifact.load_image(saved)
    library.unregister("plain")
    with pytest.raises(ArtifactError, match="library kernel plain for float32 is not registered"):
        artifact.load_image(saved)
    with pytest.raises(BuildError, match="is not registered in this process"):
        LoadedCode(image.objects)


def test_an_artifact_that_calls_what_it_does_not_list_is_refused(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = artifact.ModelManifest.from_json

    def shortened(data: bytes) -> artifact.ModelManifest:
        found = real(data)
        (image,) = found.images
        return dataclasses.replace(found, images=(dataclasses.replace(image, libraries=()),))

    monkeypatch.setattr(artifact.ModelManifest, "from_json", staticmethod(shortened))
    with pytest.raises(ArtifactError, match="other library kernels than the manifest lists"):
        artifact.load_image(saved)


@pytest.mark.parametrize(
    ("name", "function", "options", "message"),
    [
        ("Plain", plain, {}, "a lower-case identifier"),
        ("blas", plain, {}, "neither 'tiles' nor 'blas'"),
        ("mine", plain, {"operation": "conv"}, "no operation 'conv'; allowed: matmul"),
        ("mine", plain, {"dtype": "int8"}, "no dtype 'int8'"),
        ("mine", max, {}, "has no address; make it with numba.cfunc"),
        ("mine", SimpleNamespace(address=0), {}, "has no address"),
    ],
)
def test_registering_refuses(name: str, function: object, options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        library.register(name, function, **options)


def test_modules_of_the_settings_are_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "my_kernels_for_test.py").write_text(
        "from autotune import library\nfrom tests.library.test_library import plain\n"
        "library.register('of_module', plain)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("AUTOTUNE_KERNELS", "my_kernels_for_test")
    assert "of_module" in library.kernels("matmul", "float32")
    library.unregister("of_module")
    monkeypatch.setenv("AUTOTUNE_KERNELS", "not_there")
    with pytest.raises(UsageError, match="AUTOTUNE_KERNELS names module 'not_there'"):
        library.kernels("matmul", "float32")


def test_the_page_runs() -> None:
    page = Path(__file__).parents[2] / "docs" / "library-kernels.md"
    failed, tried = doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert tried > 10
    assert failed == 0
