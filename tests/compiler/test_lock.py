"""Locks: the same machine code from the file alone, and one clear error for one that does not fit."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.compiler import compile_in_detail
from autotune.compiler.explain import Compilation
from autotune.compiler.lock import Lock
from autotune.compiler.locked import changed_code, lock_of
from autotune.compiler.request import CompileRequest
from autotune.errors import LockError
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.runtime.hal.cpu.cores import core_ids
from autotune.target import Target
from search_spaces.spaces import space_for

TARGET = Target.parse("x86-64-v3", threads=1)


def graph(channels: int = 8) -> Graph:
    b = GraphBuilder("two")
    w = np.random.default_rng(0).standard_normal((channels, 8, 3, 3)).astype(np.float32)
    x = b.node("Conv", b.input("x", (1, 8, 12, 12)), b.constant("w", w), pads=(1, 1, 1, 1))
    return b.graph(b.node("Softmax", b.node("Relu", x), name="y"))


@pytest.fixture(scope="module")
def done() -> Compilation:
    """An algorithm and schedules that nobody would choose."""
    first = compile_in_detail(CompileRequest(graph(), target=TARGET, algorithm="implicit GEMM"))
    rng, schedules = np.random.default_rng(1), {}
    for key, planned in first.plan.schedules.items():
        space = space_for(planned.workload, TARGET)
        schedules[key] = space.schedule(space.random(rng, 1)[0]).trace
    return compile_in_detail(
        CompileRequest(graph(), target=TARGET, algorithm="implicit GEMM", schedules=schedules)
    )


@pytest.fixture
def lock(done: Compilation) -> Lock:
    return lock_of(done)


def test_a_lock_makes_the_same_code(done: Compilation, lock: Lock) -> None:
    assert "implicit GEMM" in lock.sites.values()
    plain = compile_in_detail(CompileRequest(graph(), target=TARGET))
    assert not plain.image.same_code(done.image)
    again = compile_in_detail(CompileRequest(graph(), lock=Lock.from_json(lock.to_json())))
    assert again.image.same_code(done.image)
    assert changed_code(lock, again) == []
    assert {(d.evidence.state, d.tier) for d in again.coverage.dispatches} == {("locked", "locked")}
    assert {d.known.partition(":")[0] for d in again.coverage.dispatches} == {"locked  (when locked"}
    assert replace(lock_of(again), schedules=()) == replace(lock, schedules=())


def test_its_text_reads_back_as_it_was_written(lock: Lock, tmp_path: Path) -> None:
    assert Lock.from_json(lock.to_json()) == lock
    lock.write(tmp_path / "model.lock")
    assert Lock.read(tmp_path / "model.lock") == lock
    assert lock.to_json().count("\n") < 40 + 20 * sum(
        len(json.loads(s.trace)["steps"]) for s in lock.schedules
    )


def refused(text: str) -> str:
    with pytest.raises(LockError) as caught:
        compile_in_detail(CompileRequest(graph(), lock=Lock.from_json(text)))
    return str(caught.value)


def changed(lock: Lock, *path: str | int, to: Any) -> str:
    """The lock's text with one value changed."""
    values = json.loads(lock.to_json())
    inside = values
    for name in path[:-1]:
        inside = inside[name]
    inside[path[-1]] = to
    return json.dumps(values)


@pytest.mark.parametrize(
    ("path", "to", "message"),
    [
        (["format"], "zip", "it is not a lock: its format is not 'autotune-lock'; give what `autotune lock` wrote"),
        (["version"], 7, "it has version 7, this autotune reads version 2; make the lock again by `autotune lock`"),
        (["schedules", 0, "code"], 3, "lock.schedules[0].code: expected <class 'str'>, got '3'; make"),
        (["target", "threads"], "1", "lock.target.threads: expected <class 'int'>, got '1'; make"),
        (["schedules", 0, "trace", "steps", 0, 0], "system", "trace names the unknown primitive 'system'; known: "),
        (["schedules", 0, "trace", "version"], 9, "trace of version 9; this program reads 1; make"),
        (["more"], 1, "lock: expected an object with format, version, model, "),
    ],
)  # fmt: skip
def test_what_is_no_lock_is_refused(lock: Lock, path: list[str | int], to: Any, message: str) -> None:
    assert refused(changed(lock, *path, to=to)).startswith(message)


@pytest.mark.parametrize("text", ["", "{", '{"format": "a", "format": "b"}', "[" * 100_000])
def test_damaged_text_is_refused(text: str) -> None:
    assert re.match("it is not JSON: .*make the lock again by `autotune lock`", refused(text), re.DOTALL)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(LockError, match=r"cannot read the lock .*none.lock: No such file"):
        Lock.read(tmp_path / "none.lock")
    (tmp_path / "bad.lock").write_bytes(b"\xff\xfe")
    with pytest.raises(LockError, match=r"cannot use the lock .*bad.lock: it is not JSON"):
        Lock.read(tmp_path / "bad.lock")


def test_a_lock_of_another_model_says_what_differs(lock: Lock) -> None:
    with pytest.raises(LockError) as caught:
        compile_in_detail(CompileRequest(graph(channels=16), lock=lock))
    lines = str(caught.value).splitlines()
    assert lines[0] == "the lock of 'two' does not fit this model, or this autotune divides it otherwise"
    assert lines[1] == "  in the model and not in the lock: 3 of 3 workloads"
    assert lines[-1] == "  make the lock again by `autotune lock`"


def test_an_option_that_there_is_not_is_named(lock: Lock) -> None:
    (key,) = (key for key, name in lock.sites.items() if name == "implicit GEMM")
    message = refused(changed(lock, "sites", key, to="magic"))
    assert re.match(
        r"the lock does not fit: it has the option 'magic' for the \w+ \w{12}, whose options are direct, ",
        message,
    )


def test_a_schedule_that_does_not_apply_is_named(lock: Lock) -> None:
    step = ["compute_inline", "nothing", []]
    message = refused(changed(lock, "schedules", 0, "trace", "steps", to=[step]))
    name = lock.schedules[0].names[0]
    assert message.startswith(
        f"the schedule that the lock has for {name} does not apply: step 0 of the trace, "
    )


def test_other_machine_code_is_refused_and_named(lock: Lock) -> None:
    other = replace(lock.schedules[1], code="0" * 64)
    lock = replace(
        lock, schedules=(lock.schedules[0], other, *lock.schedules[2:]), versions={"autotune": "0.0.1"}
    )
    message = refused(lock.to_json())
    count = len(lock.schedules)
    assert message.startswith(
        f"the locked schedules make other machine code here for 1 of {count} workloads:\n  "
    )
    assert other.names[0] in message
    assert "locked by autotune 0.0.1; this is autotune" in message
    assert compile_in_detail(CompileRequest(graph(), lock=lock, same_code=False)).image.objects


@pytest.mark.skipif(len(core_ids()) < 2, reason="one core is no two devices")
def test_a_lock_of_several_devices_makes_the_same_code(tmp_path: Path) -> None:
    placement = {"Conv": "cpu:1", "*": "cpu"}
    done = compile_in_detail(CompileRequest(graph(), placement=placement))
    lock_of(done).write(tmp_path / "net.lock")
    lock = Lock.read(tmp_path / "net.lock")
    assert lock == lock_of(done)
    assert lock.placement == placement
    assert {each.target.threads for each in lock.targets} == {1, len(core_ids())}
    again = compile_in_detail(CompileRequest(graph(), lock=lock))
    assert [(s.device, s.image.objects) for s in again.segments] == [
        (s.device, s.image.objects) for s in done.segments
    ]
    assert again.program.steps == done.program.steps
    assert [str(each) for each in again.coverage.decisions] == ["devices: Conv=cpu:1, *=cpu, as requested"]
    assert changed_code(lock, again) == []
    assert {d.tier for d in again.coverage.dispatches} == {"locked"}

    values = json.loads(lock.to_json())
    values["others"][0]["target"]["cores"] += 1
    with pytest.raises(
        LockError, match=r"the lock of 'two' has code for .*, and a device here is .*; make the lock"
    ):
        compile_in_detail(CompileRequest(graph(), lock=Lock.from_json(json.dumps(values))))
    values = json.loads(lock.to_json())
    values["others"][0]["schedules"][0]["trace"] = "x"
    with pytest.raises(LockError):
        Lock.from_json(json.dumps(values))
