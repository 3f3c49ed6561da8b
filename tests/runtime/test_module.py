"""Modules: calls, checks of arguments, timing, profiling, the end of a module."""

from __future__ import annotations

import gc
import itertools
import re
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autotune import hardware
from autotune.errors import ArtifactError, BuildError, InputError, UsageError
from autotune.runtime.artifacts import artifact
from autotune.runtime.cpu import layout
from autotune.runtime.cpu.device import Host
from autotune.runtime.executable import load
from autotune.runtime.image import Binding, ModuleImage, TensorSpec
from autotune.runtime.module import Module
from autotune.runtime.recording import spent
from autotune.workers.memory import allowance
from tests.patience import PATIENCE_S
from tests.runtime.kernels import binding, chain, image, spec


@pytest.fixture
def module():
    with Module(chain(3, 16), 2) as made:
        yield made


def two_inputs() -> ModuleImage:
    """y = a + 1 and z = b + 1, of 4 and 2 elements."""
    return image(
        [
            ("increment", binding("input", 4), binding("output", 4), 4),
            ("increment", binding("input", 2, index=1), binding("output", 2, index=1), 2),
        ],
        inputs=(spec("a", 4), spec("b", 2)),
        outputs=(spec("y", 4), spec("z", 2)),
    )


def test_outputs_of_one_name_are_both_returned() -> None:
    wanted = two_inputs()
    with Module(replace(wanted, outputs=tuple(replace(s, name="y") for s in wanted.outputs)), 1) as module:
        found = module(np.arange(4), np.arange(2))
    assert [array.tolist() for array in found] == [[1, 2, 3, 4], [1, 2]]


def test_outputs_that_no_memory_holds_are_one_clear_error() -> None:
    large = 1 << 29
    made = image(
        [("nothing", binding("input", 1), binding("output", large), 1)],
        inputs=(spec("x", 1),),
        outputs=(spec("y", large),),
    )
    with Module(made, 1) as module, allowance(1 << 30):
        for call in (
            lambda: module(np.zeros(1, np.int64)),
            lambda: module(np.zeros(2, np.int64)[::2]),  # through the conversions in Python
            lambda: module.time([np.zeros(1, np.int64)]),
        ):
            with pytest.raises(BuildError, match=r"there is no memory for \d+ bytes \(4.0 GiB\)"):
                call()


def test_scalars_of_numpy_are_arrays_without_dimensions() -> None:
    scalar = replace(spec("x", 1), shape=())
    made = image(
        [("increment", binding("input", 1), binding("output", 1), 1)],
        inputs=(scalar,),
        outputs=(replace(scalar, name="y"),),
    )
    with Module(made, 1) as module:
        assert module(np.int64(4))[0] == 5
        assert module.run({"x": np.int64(7)})["y"].shape == ()
        with pytest.raises(InputError, match=r"expected int64\[\], got float32\[\]"):
            module(np.float32(1))


def test_call_returns_a_list_of_fresh_outputs(module: Module) -> None:
    x = np.arange(16, dtype=np.int64)
    first, second = module(x), module(x)
    assert isinstance(first, list)
    assert first[0] is not second[0]
    assert np.array_equal(first[0], x + 3)


def test_outputs_of_a_page_are_aligned() -> None:
    with Module(chain(1, 512), 1) as module:
        made = [module(np.zeros(512, np.int64))[0] for _ in range(8)]
    assert all(y.ctypes.data % 64 == 0 for y in made)
    assert all((y == 1).all() for y in made)


def test_run_by_name() -> None:
    with Module(two_inputs(), 1) as module:
        got = module.run({"b": np.array([10, 20]), "a": np.zeros(4, np.int64)})
    assert got.keys() == {"y", "z"}
    assert got["y"].tolist() == [1, 1, 1, 1]
    assert got["z"].tolist() == [11, 21]


def test_a_call_takes_names_as_keywords_or_in_a_dictionary() -> None:
    a, b = np.zeros(4, np.int64), np.array([10, 20])
    with Module(two_inputs(), 1) as module:
        called = [module(b=b, a=a), module({"b": b, "a": a}), module.submit({"b": b, "a": a}).result()]
        for found in called:
            assert [array.tolist() for array in found] == [[1, 1, 1, 1], [11, 21]]
        for arrays, named in (
            ((a,), {"b": b}),
            (({"a": a},), {"b": b}),
            (({"a": a}, b), {}),
        ):
            with pytest.raises(InputError, match="as keywords, or in one dictionary, got a mix of them"):
                module(*arrays, **named)
        with pytest.raises(InputError, match="missing b; unknown c"):
            module(a=a, c=b)
        out = [np.zeros(4, np.int64), np.zeros(2, np.int64)]
        assert module(a=a, b=b, out=out)[1] is out[1]


def test_outputs_go_where_the_caller_says(module: Module) -> None:
    out = np.zeros(16, np.int64)
    (y,) = module(np.ones(16, np.int64), out=[out])
    assert y is out
    assert out.tolist() == [4] * 16


def test_inputs_need_no_cache_line_and_are_not_copied(module: Module) -> None:
    raw = np.zeros(16 * 8 + 8, np.uint8)
    x = raw[8:].view(np.int64)
    x.flags.writeable = False
    (kept,) = module.loaded._signature.inputs((x,))[0]
    assert kept.ctypes.data == x.ctypes.data
    assert module(x)[0].tolist() == [3] * 16


def test_elements_at_odd_addresses_are_copied(module: Module) -> None:
    raw = np.zeros(16 * 8 + 1, np.uint8)
    x = raw[1:].view(np.int64)
    (copy,) = module.loaded._signature.inputs((x,))[0]
    assert copy.flags.aligned
    assert module(x)[0].tolist() == [3] * 16


def test_strided_inputs_are_copied(module: Module) -> None:
    x = np.arange(32, dtype=np.int64)[::2]
    assert np.array_equal(module(x)[0], x + 3)


class Foreign:
    """A tensor of another library."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: object) -> object:
        return self.array.__dlpack__(**options)  # type: ignore[arg-type]

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def test_dlpack_outputs_are_written_where_they_are(module: Module) -> None:
    x, out = np.arange(16, dtype=np.int64), np.zeros(16, np.int64)
    given = Foreign(out)
    (found,) = module(x, out=[given])
    assert found is given
    assert np.array_equal(out, x + 3)
    out.flags.writeable = False
    with pytest.raises(InputError, match=r"in out="):
        module(x, out=[Foreign(out)])


def test_dlpack_inputs_are_not_copied(module: Module) -> None:
    x = np.arange(16, dtype=np.int64)
    (taken,) = module.loaded._signature.inputs((Foreign(x),))[0]
    assert taken.ctypes.data == x.ctypes.data
    assert np.array_equal(module(Foreign(x))[0], x + 3)


@pytest.mark.parametrize(
    ("raised", "reason"),
    [
        (KeyError("device"), "'device'"),
        (AssertionError(), "AssertionError"),
        (BufferError("on a GPU"), "on a GPU"),
        (type("LibraryError", (Exception,), {})("lost"), "lost"),
    ],
)
def test_whatever_dlpack_raises_is_an_input_error(module: Module, raised: Exception, reason: str) -> None:
    class Method:
        def __dlpack__(self, **options: object) -> object:
            raise raised

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    class Property:
        @property
        def __dlpack__(self) -> object:
            raise raised

    message = f"input 0 ('x') of 'test': not readable through DLPack: {reason}"
    for foreign in (Method(), Property()):
        with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
            module(foreign)


X16 = np.zeros(16, np.int64)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ((), "'test' takes 1 inputs, got 0; expected x: int64[16]"),
        ((X16, X16), "'test' takes 1 inputs, got 2; expected x: int64[16]"),
        (
            (np.zeros(15, np.int64),),
            "input 0 ('x') of 'test': expected int64[16], got int64[15]",
        ),
        (
            (np.zeros((4, 4), np.int64),),
            "input 0 ('x') of 'test': expected int64[16], got int64[4, 4]",
        ),
        (
            (np.zeros(16, np.float32),),
            "input 0 ('x') of 'test': expected int64[16], got float32[16]",
        ),
        (
            (np.zeros(16, ">i8"),),
            "input 0 ('x') of 'test': expected int64[16], got int64[16] (other byte order)",
        ),
        (
            ([0] * 16,),
            "input 0 ('x') of 'test': expected a NumPy array int64[16], got list; np.asarray makes one",
        ),
    ],
)
def test_wrong_inputs_are_refused(module: Module, arrays: tuple, message: str) -> None:
    with pytest.raises(InputError) as caught:
        module(*arrays)
    assert str(caught.value) == message


def test_wrong_names_are_refused() -> None:
    with Module(two_inputs(), 1) as module, pytest.raises(InputError) as caught:
        module.run({"a": np.zeros(4, np.int64), "c": X16})
    assert str(caught.value) == (
        "wrong input names for 'test': missing b; unknown c; expected a: int64[4], b: int64[2]"
    )


def test_wrong_out_arrays_are_refused(module: Module) -> None:
    x, frozen = X16, np.zeros(16, np.int64)
    frozen.flags.writeable = False
    cases = [
        ([], "has 1 outputs, got 0 arrays"),
        ([[0] * 16], "expected an array, got list"),
        ([np.zeros(16, np.int32)], r"expected int64\[16\], got int32\[16\]"),
        ([np.zeros(32, np.int64)[::2]], "C-contiguous and writable"),
        ([frozen], "C-contiguous and writable"),
        ([x], "overlaps"),
    ]
    for out, message in cases:
        with pytest.raises(InputError, match=message):
            module(x, out=out)
    both = np.zeros(4, np.int64)
    with Module(two_inputs(), 1) as two, pytest.raises(InputError, match="overlaps"):
        two(np.zeros(4, np.int64), np.zeros(2, np.int64), out=[both, both[:2]])


def test_constants_are_bound_and_misaligned_ones_copied() -> None:
    raw = np.zeros(4 * 8 + 8, np.uint8)
    constant = raw[8:].view(np.int64)
    constant[:] = [5, 6, 7, 8]
    steps = [("increment", binding("constant", 2, offset=16), binding("output", 2), 2)]
    with Module(image(steps, outputs=(spec("y", 2),), constants=(constant,)), 1) as module:
        assert all(c.ctypes.data % 64 == 0 for c in module.loaded._constants)
        assert module()[0].tolist() == [8, 9]


def test_empty_tensors_pass() -> None:
    steps = [("nothing", binding("input", 0), binding("output", 0), 1)]
    empty = image(steps, inputs=(spec("x", 0),), outputs=(spec("y", 0),))
    with Module(empty, 2) as module:
        assert module(np.zeros(0, np.int64))[0].shape == (0,)


def test_a_model_without_commands_runs() -> None:
    with Module(image([], outputs=(spec("y", 1),)), 2) as module:
        assert len(module()) == 1
        assert module.profile([]).shape == (0,)


@pytest.mark.parametrize("threads", [1, 2])
def test_time_counts_runs(threads: int) -> None:
    with Module(chain(3, 16), threads) as module:
        times = module.time([X16], warmup=2, repeat=7)
        assert times.shape == (7,)
        assert (times > 0).all()
        longer = module.time({"x": X16}, warmup=0, repeat=1, min_ns=2_000_000)
        assert longer.sum() >= 2_000_000


def test_time_refuses_no_runs(module: Module) -> None:
    with pytest.raises(UsageError, match="repeat must be at least 1"):
        module.time([X16], repeat=0)


def test_profile_attributes_time_to_the_slow_dispatch() -> None:
    y = binding("output", 2)
    steps = [("count", y, y, 2), ("slow", y, y, 2), ("count", y, y, 1)]
    with Module(image(steps, outputs=(spec("y", 2),)), 1) as module:
        spent = module.profiles([], 9)
        assert module.profile([], repeat=3).shape == (3,)
    assert spent.min(axis=0).argmax() == 1  # other work only adds to what a run takes


def test_profile_adds_the_commands_of_a_dispatch() -> None:
    made = chain(4, 16)
    commands = tuple(replace(c, dispatch=c.dispatch // 3) for c in made.commands)
    with Module(replace(made, commands=commands, dispatches=made.dispatches[:2]), 2) as module:
        spent = module.profile([X16], repeat=5)
    assert spent.shape == (2,)
    assert (spent > 0).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_runs_that_follow_each_other_are_profiled_one_by_one(threads: int) -> None:
    y = binding("output", 2)
    steps = [("count", y, y, 2), ("slow", y, y, 2), ("count", y, y, 1)]
    with Module(image(steps, outputs=(spec("y", 2),)), threads) as module:
        spent, events = module.profiles([], 5), module.loaded._events([], 5)[0]
    assert spent.shape == (5, 3)
    assert spent.min(axis=0).argmax() == 1  # other work only adds to what a run takes
    assert (events[:, :, :, layout.TILES_RUN].sum(axis=2) == [2, 2, 1]).all()
    assert (np.diff(events[:, :, 0, layout.MET][:, -1]) > 0).all()


def test_a_dispatch_ends_with_its_last_tile_whoever_was_halted() -> None:
    events = np.zeros((3, 2, layout.EVENT_SLOTS), np.int64)
    begins = [[10, 10], [90, 30], [95, 60]]  # the caller was halted from 12 to 90, the other went on
    ends = [[12, 30], [90, 60], [95, 80]]
    tiles = [[1, 1], [0, 2], [0, 2]]
    events[:, :, layout.BEGIN], events[:, :, layout.END], events[:, :, layout.TILES_RUN] = begins, ends, tiles
    events[:, :, layout.BUSY] = events[:, :, layout.END] - events[:, :, layout.BEGIN]
    assert spent(events).tolist() == [20, 30, 20]
    assert spent(events[:0]).tolist() == []


def test_the_first_dispatch_begins_with_whoever_begins() -> None:
    """The caller was halted before it looked at the first command, which the other worker ran; a third did not."""
    events = np.zeros((2, 3, layout.EVENT_SLOTS), np.int64)
    events[0, :, layout.BEGIN], events[1, :, layout.BEGIN] = [50, 10, 0], [50, 30, 0]
    events[0, :, layout.END], events[1, :, layout.END] = [50, 30, 0], [60, 60, 0]
    events[:, :, layout.BUSY] = events[:, :, layout.END] - events[:, :, layout.BEGIN]
    events[:, :2, layout.TILES_RUN] = [[0, 2], [1, 1]]
    assert spent(events).tolist() == [20, 30]


def test_commands_share_the_time_in_which_one_of_them_ran_before_the_others() -> None:
    """The caller woke the other worker from 20 to 50, who ran the third command before the caller began the second."""
    events = np.zeros((4, 2, layout.EVENT_SLOTS), np.int64)
    events[:, :, layout.BEGIN] = [[10, 0], [50, 0], [55, 30], [60, 0]]
    events[:, :, layout.END] = [[20, 0], [55, 0], [55, 50], [70, 0]]
    events[:, :, layout.BUSY] = events[:, :, layout.END] - events[:, :, layout.BEGIN]
    events[:, :, layout.TILES_RUN] = [[1, 0], [1, 0], [0, 2], [1, 0]]
    assert spent(events).tolist() == [10, 7, 28, 15]


def test_a_command_that_was_not_chosen_takes_no_time() -> None:
    events = np.zeros((3, 1, layout.EVENT_SLOTS), np.int64)
    events[:, 0, layout.BEGIN], events[:, 0, layout.END] = [10, 20, 20], [20, 20, 30]
    events[:, 0, layout.BUSY] = events[:, 0, layout.END] - events[:, 0, layout.BEGIN]
    events[:, 0, layout.TILES_RUN] = [1, 0, 1]
    assert spent(events).tolist() == [10, 0, 10]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_timeline_covers_all_tiles_in_order(threads: int) -> None:
    with Module(chain(4, 33), threads) as module:
        events = module.timeline([np.zeros(33, np.int64)])
    for command in range(4):
        rows = [e for e in events if e.command == command]
        assert sum(e.tiles for e in rows) == 33
        assert all(0 < e.begin_ns <= e.end_ns for e in rows)
        # A worker that comes when all tiles are taken may look at a command after the caller went on.
        assert all(e.end_ns <= e.met_ns for e in rows if e.tiles)
    caller = [e for e in events if e.worker == 0]
    assert [e.command for e in caller] == [0, 1, 2, 3]
    assert all(a.met_ns <= b.begin_ns for a, b in itertools.pairwise(caller))


def test_submit_runs_in_the_background_in_order(module: Module) -> None:
    futures = [module.submit(np.full(16, value, np.int64)) for value in range(50)]
    assert [int(f.result(timeout=PATIENCE_S)[0][0]) for f in futures] == [v + 3 for v in range(50)]
    with pytest.raises(InputError):
        module.submit(np.zeros(1)).result(timeout=PATIENCE_S)


def test_a_closed_module_refuses() -> None:
    module = Module(chain(1, 4), 2)
    module.close()
    module.close()
    with pytest.raises(UsageError, match="module 'test' is closed"):
        module(np.zeros(4, np.int64))
    with pytest.raises(UsageError, match="closed"):
        module.submit(np.zeros(4, np.int64))


def test_a_dropped_module_is_freed() -> None:
    module = Module(chain(1, 4), 2)
    module(np.zeros(4, np.int64))
    gone = weakref.ref(module)
    del module
    gc.collect()
    assert gone() is None


def test_repr_names_types(module: Module) -> None:
    assert repr(module) == (
        "<Module 'test' (x: int64[16]) -> (y: int64[16]), 0 of 3 dispatches tuned, threads=2>"
    )
    module.close()
    assert repr(module).endswith("threads=2, closed>")


def test_default_threads_come_from_the_target() -> None:
    made = chain(1, 4)
    with Module(replace(made, target=made.target.with_threads(1))) as module:
        assert module.threads == 1


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    device = replace(Host.here(), cores=2)
    monkeypatch.setattr(Host, "here", staticmethod(lambda: device))
    monkeypatch.setattr(hardware, "usable_cores", lambda: 2)


def test_fewer_cores_than_threads_are_said_once(two_cores: None, caplog: pytest.LogCaptureFixture) -> None:
    made = chain(3, 16)
    wide = replace(made, target=made.target.with_threads(77))
    for _ in range(2):
        with Module(wide) as module:
            assert module.threads == 2
            np.testing.assert_array_equal(module(np.arange(16))[0], np.arange(16) + 3)
    assert caplog.messages == ["compiled for 77 threads, but this process may use 2 cores: it runs with 2"]


def test_loading_with_more_threads_than_cores_is_refused(two_cores: None, tmp_path: Path) -> None:
    artifact.save(chain(3, 16), tmp_path / "m.atm")
    with pytest.raises(UsageError, match="3 threads were requested, but this process may use 2 cores"):
        load(tmp_path / "m.atm", threads=3)
    with load(tmp_path / "m.atm", threads=3, allow_oversubscription=True) as module:
        assert module.threads == 3


def test_bindings_outside_their_memory_are_refused() -> None:
    good = chain(2, 4)
    (first, second) = good.commands
    bad = [
        Binding("arena", 0, 8 * 8 - 8, 16),
        Binding("arena", 1, 0, 8),
        Binding("arena", 0, -8, 8),
        Binding("arena", 0, 0, -8),
        Binding("input", 0, 0, 8 * 5),
        Binding("constant", 0, 0, 8),
        Binding("elsewhere", 0, 0, 8),  # type: ignore[arg-type]
    ]
    for wrong in bad:
        broken = replace(first, bindings=(first.bindings[0], wrong))
        with pytest.raises(ArtifactError, match="command 0"):
            Module(replace(good, commands=(broken, second)), 1)


def test_other_inconsistencies_are_refused() -> None:
    good = chain(1, 4)
    (command,) = good.commands
    bad = [
        replace(good, arena_bytes=-1),
        replace(good, inputs=(TensorSpec("x", (4,), "object"),)),
        replace(good, inputs=(TensorSpec("x", (-4,), "int64"),)),
        replace(good, inputs=(*good.inputs, *good.inputs)),
        replace(good, commands=(replace(command, symbol="k0; rm"),)),
        replace(good, commands=(replace(command, symbol="other"),)),
        replace(good, commands=(replace(command, tiles=0),)),
        replace(good, commands=(replace(command, dispatch=1),)),
        replace(good, commands=(replace(command, object_index=-1),)),
        replace(good, commands=(replace(command, scratch_bytes=-1),)),
        replace(good, constants=(np.zeros(4, np.complex128),)),
        replace(good, objects=(b"",)),
        replace(good, objects=(good.objects[0][:200],)),
        replace(good, target=replace(good.target, arch="aarch64")),
    ]
    for broken in bad:
        with pytest.raises((ArtifactError, BuildError)):
            Module(broken, 1)
