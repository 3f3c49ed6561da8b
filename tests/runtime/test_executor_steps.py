"""The steps of the executor one by one, run by Python over made-up memory: what is claimed, run, counted and noted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from autotune.runtime.cpu import balance, executor, layout, repeats, tiles
from autotune.runtime.cpu import walk as walking
from autotune.runtime.cpu.addresses import at, shares_of, worker_at

STATE, PROGRAM, COMMAND, REQUEST, EVENTS, TABLE, KERNEL, SCRATCH = (1 << 20 << n for n in range(8))


MODULES = (executor, balance, repeats, tiles, walking)


class Machine:
    """Memory, a clock that goes on by 1 with each look, the kernels that were called, and what was told to others."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.memory: defaultdict[int, int] = defaultdict(int)
        self.now = 100
        self.calls: list[tuple[int, ...]] = []
        self.told: list[tuple[Any, ...]] = []
        self.exchange: Callable[[int], None] = lambda address: None
        """The others' act just before this worker's exchange."""
        acts = dict.fromkeys(("load", "load_relaxed", "load_acquire"), self.memory.__getitem__)
        acts |= dict.fromkeys(("store", "store_release"), self.memory.__setitem__)
        acts |= {"compare_exchange": self.compare_exchange, "clock_ns": self.clock}
        acts["call_kernel"] = lambda *call: self.calls.append(call)
        for name in ("leave", "enter", "arrive", "add_done"):
            acts[name] = lambda *call, name=name: self.told.append((name, *call)) or True
        for module in MODULES:
            for name in acts.keys() & vars(module).keys():
                patch.setattr(module, name, acts[name])
        self.request(0, 0)

    def compare_exchange(self, address: int, expected: int, desired: int) -> int:
        self.exchange(address)
        before = self.memory[address]
        if before == expected:
            self.memory[address] = desired
        return before

    def clock(self) -> int:
        self.now += 1
        return self.now

    def set(self, base: int, **slots: int) -> None:
        for name, value in slots.items():
            self.memory[at(base, getattr(layout, name))] = value

    def get(self, base: int, *names: str) -> list[int]:
        return [self.memory[at(base, getattr(layout, name))] for name in names]

    def request(self, cancelled: int, deadline: int) -> None:
        self.set(REQUEST, CANCELLED=cancelled, DEADLINE_NS=deadline)

    def command(self, number: int = 0, **slots: int) -> int:
        command = at(COMMAND, number * layout.COMMAND_SLOTS)
        self.set(command, **{"KERNEL": KERNEL, "TABLE": TABLE, "TILES": 8, "UNIT": 1, "ALONE": 0, **slots})
        return command

    def program(self, count: int, **slots: int) -> None:
        self.set(STATE, PROGRAM=PROGRAM, EVENTS=0)
        self.set(PROGRAM, COMMANDS=COMMAND, COUNT=count, SHARED=count, REQUEST=REQUEST, SCRATCH=SCRATCH)
        self.set(PROGRAM, SCRATCH_STRIDE=1000, **slots)

    def shares(self, *bounds: int) -> None:
        """Return the begins of the workers' ranges, in sixteenths."""
        shares = shares_of(STATE, len(bounds))
        for number, bound in enumerate((*bounds, 16)):
            self.memory[at(shares, layout.SHARES + number)] = layout.WHOLE // 16 * bound

    @property
    def tiles(self) -> list[tuple[int, int]]:
        """The ranges of tiles that were run."""
        return [call[2:4] for call in self.calls]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


# How much is claimed.


def test_an_owner_claims_a_third_of_what_is_left() -> None:
    assert [tiles._wanted(left, 1, 0, 1) for left in (1, 2, 3, 4, 6, 7, 10, 100)] == [
        1,
        1,
        1,
        2,
        2,
        3,
        4,
        34,
    ]


@pytest.mark.parametrize(
    ("mine", "theirs", "lefts", "expected"),
    [
        (1, 1, (1, 2, 3, 4, 5, 8, 10, 100), [1, 1, 1, 1, 2, 2, 3, 25]),
        (7, 1, (1, 2, 3, 4, 5, 8, 10, 100), [1, 2, 2, 2, 3, 4, 5, 44]),
        (1, 7, (1, 6, 7, 8, 15, 100), [0, 0, 1, 1, 1, 6]),
        (3, 5, (1, 2, 4, 100), [0, 1, 1, 19]),
    ],
)
def test_a_thief_claims_half_of_what_both_are_done_with_at_once(
    mine: int, theirs: int, lefts: tuple[int, ...], expected: list[int]
) -> None:
    assert [tiles._wanted(left, mine, theirs, 1) for left in lefts] == expected
    # Where nothing may be left to the owner it is one at least.
    assert [tiles._wanted(left, mine, theirs, 0) for left in lefts] == [max(1, n) for n in expected]


def test_units_of_a_range_and_of_a_command(machine: Machine) -> None:
    spans = ((0, 0, 1), (0, 8, 1), (3, 8, 2), (3, 9, 2), (3, 10, 4), (5, 6, 7))
    assert [tiles._units_between(*span) for span in spans] == [0, 8, 3, 3, 2, 1]
    machine.shares(0, 8)
    assert tiles.units_of(STATE, 2, machine.command(TILES=21)) == 21
    assert tiles.units_of(STATE, 2, machine.command(TILES=21, ALONE=1)) == 0
    assert tiles.units_of(STATE, 2, machine.command(TILES=20, UNIT=3)) == 4 + 4  # of ten each
    machine.shares(0, 4, 12)
    assert tiles.units_of(STATE, 3, machine.command(TILES=20, UNIT=3)) == 2 + 4 + 2


# A range.

CLAIMS = layout.CLAIMS
COUNTER = 1 << 30


def claimed(
    machine: Machine, seen: int, units: int, mine: int = 1, theirs: int = 0, leaves: int = 0
) -> list[tuple[int, int]]:
    """Return the units that are claimed of a range until nothing is left: how many come before, and how many."""
    machine.memory[COUNTER] = seen

    def next_claim() -> int:
        return tiles._claim(COUNTER, 5 * CLAIMS, units, mine, theirs, leaves, False)

    return [divmod(claim, CLAIMS) for claim in iter(next_claim, 0)]


def test_an_owner_claims_its_range_in_chunks_that_become_smaller(machine: Machine) -> None:
    assert claimed(machine, 5 * CLAIMS, 10) == [(0, 4), (4, 2), (6, 2), (8, 1), (9, 1)]
    assert machine.memory[COUNTER] == 5 * CLAIMS + 10
    assert claimed(machine, 5 * CLAIMS + 8, 10) == [(8, 1), (9, 1)]


@pytest.mark.parametrize("seen", [0, 3, 4 * CLAIMS + 9, 5 * CLAIMS - 1])
def test_a_range_that_nobody_was_at_is_claimed_from_its_beginning(machine: Machine, seen: int) -> None:
    assert claimed(machine, seen, 4, leaves=1) == [(0, 2), (2, 1), (3, 1)]
    assert machine.memory[COUNTER] == 5 * CLAIMS + 4


def test_nothing_is_claimed_of_what_is_taken_or_over(machine: Machine) -> None:
    for seen in (5 * CLAIMS + 4, 5 * CLAIMS + 5, 6 * CLAIMS, 9 * CLAIMS + 1):
        assert claimed(machine, seen, 4) == []
        assert machine.memory[COUNTER] == seen
    assert claimed(machine, 5 * CLAIMS, 0) == []


def test_units_are_left_to_an_owner_that_is_there_and_faster(machine: Machine) -> None:
    assert claimed(machine, 5 * CLAIMS + 1, 4, mine=1, theirs=7, leaves=1) == []
    assert claimed(machine, 5 * CLAIMS, 4, mine=1, theirs=7, leaves=1) == []  # there, and has claimed nothing
    assert claimed(machine, 5 * CLAIMS + 1, 4, mine=1, theirs=7, leaves=0) == [(1, 1), (2, 1), (3, 1)]
    assert claimed(machine, 5 * CLAIMS - 1, 4, mine=1, theirs=7, leaves=1) != []  # it may be anywhere


def test_what_others_claim_meanwhile_is_theirs(machine: Machine) -> None:
    def other(address: int) -> None:
        machine.memory[address] += 2
        machine.exchange = lambda address: None

    machine.exchange = other
    assert claimed(machine, 5 * CLAIMS, 6) == [(2, 2), (4, 1), (5, 1)]

    def later(address: int) -> None:
        machine.memory[address] = 6 * CLAIMS

    machine.exchange = later
    assert claimed(machine, 5 * CLAIMS, 6) == []


# A command.


def take(
    machine: Machine,
    worker: int,
    workers: int,
    mode: int = 0,
    number: int = 5,
    event: int = 0,
    **command: int,
) -> None:
    machine.program(1)
    tiles.take_tiles(STATE, worker, workers, number, machine.command(**command), SCRATCH, event, mode)


def test_a_worker_runs_its_own_range_then_those_of_the_next_ones(machine: Machine) -> None:
    machine.shares(0, 4, 8)
    take(machine, 1, 3, TILES=16)
    begins = [first for first, _ in machine.tiles]
    assert sorted({tile for first, last in machine.tiles for tile in range(first, last)}) == list(range(16))
    assert sum(last - first for first, last in machine.tiles) == 16
    owners = [0 if first < 4 else 1 if first < 8 else 2 for first in begins]
    assert list(dict.fromkeys(owners)) == [1, 2, 0]
    assert owners == sorted(owners, key=[1, 2, 0].index)
    counters = [machine.memory[at(worker_at(STATE, owner), layout.CLAIMED)] for owner in range(3)]
    assert counters == [5 * CLAIMS + 4, 5 * CLAIMS + 4, 5 * CLAIMS + 8]
    assert machine.told == [("add_done", STATE, 1, 3, 5, 16, 16)]


def test_units_are_run_whole_and_the_last_ends_with_the_range(machine: Machine) -> None:
    machine.shares(0)
    take(machine, 0, 1, TILES=11, UNIT=4)
    assert machine.tiles == [(0, 4), (4, 8), (8, 11)]
    assert {(kernel, table, scratch) for kernel, table, _, _, scratch in machine.calls} == {
        (KERNEL, TABLE, SCRATCH)
    }
    assert machine.told == [("add_done", STATE, 0, 1, 5, 3, 3)]


def test_the_next_range_begins_where_the_one_before_ends(machine: Machine) -> None:
    machine.shares(0, 8)
    take(machine, 1, 2, TILES=14, UNIT=4)
    assert machine.tiles == [(7, 11), (11, 14), (0, 4), (4, 7)]


def test_what_is_run_of_another_range_is_stolen(machine: Machine) -> None:
    machine.shares(0, 4)
    machine.set(EVENTS, TILES_RUN=3)
    take(machine, 0, 2, event=EVENTS, TILES=16)
    assert machine.get(EVENTS, "TILES_RUN", "TILES_STOLEN", "END") == [19, 12, machine.now]
    assert machine.get(0, "TILES_RUN", "TILES_STOLEN", "END") == [0, 0, 0]


def test_no_event_is_written_where_there_is_none(machine: Machine) -> None:
    machine.shares(0, 4)
    take(machine, 0, 2, TILES=16)
    assert machine.get(0, "TILES_RUN", "TILES_STOLEN", "END") == [0, 0, 0]


def test_who_ran_nothing_says_nothing(machine: Machine) -> None:
    machine.shares(0, 8)
    for owner in (0, 1):
        machine.memory[at(worker_at(STATE, owner), layout.CLAIMED)] = 6 * CLAIMS
    take(machine, 0, 2)
    assert (machine.calls, machine.told) == ([], [])
    take(machine, 1, 2, mode=tiles.LAST)
    assert machine.told == [("leave", STATE, 1)]


def test_a_worker_leaves_before_it_says_what_it_ran_of_the_last_command(machine: Machine) -> None:
    machine.shares(0, 8)
    take(machine, 1, 2, mode=tiles.LAST, UNIT=4)
    assert machine.told == [("leave", STATE, 1), ("add_done", STATE, 1, 2, 5, 2, 2)]


def test_tiles_are_left_to_others_where_the_command_says_so_but_not_to_the_end(machine: Machine) -> None:
    machine.shares(0, 2)  # the other is seven times as fast, and at work

    def ran(mode: int, leave: int) -> int:
        machine.calls.clear()
        for owner in (0, 1):
            machine.memory[at(worker_at(STATE, owner), layout.CLAIMED)] = 5 * CLAIMS
        take(machine, 0, 2, mode, TILES=4, LEAVE=leave)
        return sum(last - first for first, last in machine.tiles)

    assert [ran(0, 1), ran(0, 0), ran(tiles.REST, 1), ran(tiles.LAST, 1)] == [0, 4, 4, 0]


def test_a_command_of_a_cancelled_request_is_claimed_and_not_run(machine: Machine) -> None:
    machine.shares(0, 8)
    machine.request(1, 0)
    take(machine, 0, 2)
    assert (machine.calls, machine.told) == ([], [("add_done", STATE, 0, 2, 5, 8, 8)])


# Requests.


def test_a_request_is_stopped_when_it_was_cancelled_or_is_late(machine: Machine) -> None:
    for cancelled, deadline, stopped, noted in (
        (0, 0, False, 0),
        (1, 0, True, 1),
        (7, 0, True, 7),
        (0, 10**9, False, 0),
        (0, 50, True, layout.LATE),
        (1, 50, True, layout.LATE),
    ):
        machine.request(cancelled, deadline)
        assert tiles.stopped(REQUEST) is stopped
        assert machine.get(REQUEST, "CANCELLED") == [noted]
    machine.request(0, machine.now + 1)  # it is that now
    assert not tiles.stopped(REQUEST)
    assert tiles.stopped(REQUEST)


def test_patches_put_addresses_with_their_offsets_into_tables(machine: Machine) -> None:
    addresses, patches = 1 << 31, 1 << 32
    machine.set(PROGRAM, ADDRESSES=addresses, PATCHES=patches, PATCH_COUNT=3)
    for number, address in enumerate((1000, 2000)):
        machine.memory[at(addresses, number)] = address
    for number, (source, offset) in enumerate(((1, 8), (0, 0), (1, 64), (0, 1))):
        row = at(patches, number * layout.PATCH_SLOTS)
        machine.set(row, PATCH_SLOT=at(TABLE, number), PATCH_SOURCE=source, PATCH_OFFSET=offset)
    executor._apply_patches(PROGRAM)
    assert [machine.memory[at(TABLE, number)] for number in range(4)] == [2008, 1000, 2064, 0]


# One worker.


def test_one_worker_runs_commands_in_order_and_notes_when(machine: Machine) -> None:
    machine.program(2)
    machine.command(0, TILES=3)
    machine.command(1, TILES=5, TABLE=77)
    executor._run_alone(PROGRAM, 2, EVENTS)
    assert machine.calls == [(KERNEL, TABLE, 0, 3, SCRATCH), (KERNEL, 77, 0, 5, SCRATCH)]
    names = ("BEGIN", "END", "MET", "TILES_RUN", "TILES_STOLEN")
    assert machine.get(EVENTS, *names) == [101, 102, 102, 3, 0]
    assert machine.get(at(EVENTS, 2 * layout.EVENT_SLOTS), *names) == [103, 104, 104, 5, 0]
    assert machine.get(at(EVENTS, layout.EVENT_SLOTS), *names) == [0] * 5
    assert machine.get(at(EVENTS, 4 * layout.EVENT_SLOTS), *names) == [0] * 5
    machine.calls.clear()
    machine.request(1, 0)
    executor._run_alone(PROGRAM, 1, 0)
    assert machine.calls == []
    assert machine.get(0, *names) == [0] * 5


def test_the_caller_runs_all_of_a_command_of_its_own(machine: Machine) -> None:
    command = machine.command(TILES=6)
    tiles.run_on_caller(command, REQUEST, SCRATCH, EVENTS)
    assert machine.calls == [(KERNEL, TABLE, 0, 6, SCRATCH)]
    assert machine.get(EVENTS, "TILES_RUN", "END") == [6, 101]
    tiles.run_on_caller(command, REQUEST, SCRATCH, 0)
    assert len(machine.calls) == 2
    assert machine.get(0, "TILES_RUN", "END") == [0, 0]
    machine.request(1, 0)
    machine.set(EVENTS, TILES_RUN=0)
    tiles.run_on_caller(command, REQUEST, SCRATCH, EVENTS)
    assert len(machine.calls) == 2
    assert machine.get(EVENTS, "TILES_RUN", "END") == [0, 102]


# Rows of events.


def row(step: int, workers: int = 3) -> int:
    return at(EVENTS, step * workers * layout.EVENT_SLOTS)


def test_the_caller_notes_when_commands_are_done(machine: Machine) -> None:
    walking._say_met(EVENTS, 3, 1, 3)
    assert [machine.get(row(step), "MET") for step in range(4)] == [[0], [101], [101], [0]]
    assert sum(value != 0 for value in machine.memory.values()) == 2


def test_rows_of_a_run_that_is_sampled_count_nothing_yet(machine: Machine) -> None:
    machine.program(2, SAMPLE=EVENTS)
    for number in range(7):
        machine.set(at(EVENTS, number * layout.EVENT_SLOTS), TILES_RUN=9, BEGIN=9)
    assert executor._sample_rows(PROGRAM, 3) == EVENTS
    found = [machine.get(at(EVENTS, n * layout.EVENT_SLOTS), "TILES_RUN", "BEGIN") for n in range(7)]
    assert found == [[0, 9]] * 6 + [[9, 9]]


def test_each_run_has_rows_of_its_own(machine: Machine) -> None:
    machine.program(4)
    assert [executor._events_of(PROGRAM, 3, run, EVENTS) for run in range(3)] == [row(0), row(4), row(8)]
    assert executor._events_of(PROGRAM, 3, 2, 0) == 0


# Runs.


def replaced(machine: Machine, patch: pytest.MonkeyPatch, *names: str) -> None:
    """Have functions of the executor say that they were called."""
    for name in names:
        for module in (each for each in MODULES if hasattr(each, name)):
            patch.setattr(module, name, lambda *call, name=name: machine.told.append((name, *call)))


TIMES = 1 << 40


@pytest.mark.parametrize(("team", "parallel"), [(1, 1), (2, 0)])
def test_a_program_of_one_worker_runs_as_often_as_asked(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, team: int, parallel: int
) -> None:
    replaced(machine, monkeypatch, "_apply_patches", "_run_alone", "_run_together")
    machine.program(4, TEAM=team, PARALLEL=parallel)
    assert executor.execute(PROGRAM, 2, 0, 0) is True
    assert machine.told == [("_apply_patches", PROGRAM)] + 2 * [("_run_alone", PROGRAM, team, 0)]
    assert (machine.memory[0], machine.now) == (0, 100)  # no clock is looked at
    machine.told.clear()
    assert executor.execute(PROGRAM, 3, TIMES, EVENTS) is True
    events = [at(EVENTS, 4 * run * team * layout.EVENT_SLOTS) for run in range(3)]
    assert [call[-1] for call in machine.told[1:]] == events
    assert [machine.memory[at(TIMES, run)] for run in range(4)] == [1, 1, 1, 0]


def test_a_program_of_a_team_runs_with_it(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(machine, monkeypatch, "_apply_patches", "_run_alone", "_run_together")
    machine.program(4, TEAM=2, PARALLEL=1)
    executor.execute(PROGRAM, 3, TIMES, EVENTS)
    assert machine.told == [("_apply_patches", PROGRAM), ("_run_together", PROGRAM, 2, 3, TIMES, EVENTS)]


def together(machine: Machine, patch: pytest.MonkeyPatch, due: bool, serving: int = 2) -> None:
    replaced(machine, patch, "lock", "unlock", "learn", "_fork", "run_share", "_join")
    patch.setattr(executor, "sample_due", lambda *call: due)
    machine.program(4, STATE=STATE, SAMPLE=EVENTS * 64)
    machine.set(STATE, SERVING=serving)


STEPS = ("lock", "_fork", "run_share", "_join", "_fork", "run_share", "_join", "unlock")


@pytest.mark.parametrize("events", [0, EVENTS])
def test_a_team_runs_one_run_after_another(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, events: int
) -> None:
    together(machine, monkeypatch, due=False)
    assert executor._run_together(PROGRAM, 3, 2, 0, events) is True
    assert tuple(call[0] for call in machine.told) == STEPS
    rows = [at(events, 4 * run * 3 * layout.EVENT_SLOTS) if events else 0 for run in range(2)]
    assert machine.told[0] == ("lock", at(STATE, layout.TURN))
    assert machine.told[1:4] == [
        ("_fork", STATE, PROGRAM, rows[0]),
        ("run_share", STATE, 0, 3, 0),
        ("_join", STATE, 3, None),
    ]
    assert machine.told[4] == ("_fork", STATE, PROGRAM, rows[1])
    assert machine.told[-1] == ("unlock", at(STATE, layout.TURN))
    assert (machine.now, machine.memory[0]) == (100, 0)
    executor._run_together(PROGRAM, 3, 2, TIMES, events)
    assert [machine.memory[at(TIMES, run)] for run in range(3)] == [1, 1, 0]


@pytest.mark.parametrize(("events", "rows"), [(0, EVENTS * 64), (EVENTS, EVENTS)])
def test_a_run_that_is_sampled_teaches(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, events: int, rows: int
) -> None:
    together(machine, monkeypatch, due=True)
    executor._run_together(PROGRAM, 3, 1, 0, events)
    assert machine.told[1] == ("_fork", STATE, PROGRAM, rows)
    assert machine.told[-2:] == [("learn", STATE, PROGRAM, 3, rows), ("unlock", at(STATE, layout.TURN))]


@pytest.mark.parametrize("serving", [0, 1, 3])
def test_nothing_runs_while_workers_are_missing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, serving: int
) -> None:
    together(machine, monkeypatch, due=True, serving=serving)
    assert executor._run_together(PROGRAM, 3, 2, TIMES, EVENTS) is False
    assert [call[0] for call in machine.told] == ["lock", "unlock"]


def test_workers_are_given_a_program_and_commands_are_counted_on(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced(machine, monkeypatch, "begin_run", "end_run")
    machine.program(4)
    for program, events in ((PROGRAM, 8), (PROGRAM, 16), (1 << 35, 16)):
        machine.told.clear()
        executor._fork(STATE, program, events)
        assert machine.get(STATE, "PROGRAM", "EVENTS") == [program, events]
        assert machine.told == [("begin_run", STATE)]
    executor._join(STATE, 3, 11)
    assert machine.told[-1] == ("end_run", STATE, 3)
    assert machine.get(STATE, "BASE") == [11]


def test_a_worker_takes_part_in_odd_generations_until_the_pool_stops(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced(machine, monkeypatch, "run_share")
    generations = [4, 5, 6, 9, 10]
    machine.set(STATE, GENERATION=3)

    def await_run(state: int, worker: int, seen: int) -> int:
        machine.told.append(("await_run", state, worker, seen))
        assert machine.get(worker_at(STATE, 2), "SERVED") == [1]
        assert machine.get(STATE, "SERVING") == [5]
        if len(generations) == 1:
            machine.set(STATE, STOP=1)
        return generations.pop(0)

    def fetch_add(address: int, value: int) -> int:
        machine.memory[address] += value
        return machine.memory[address] - value

    monkeypatch.setattr(executor, "await_run", await_run)
    monkeypatch.setattr(executor, "fetch_add", fetch_add)
    machine.set(STATE, SERVING=4)
    executor.serve(STATE, 2, 3)
    assert [call[-1] for call in machine.told if call[0] == "await_run"] == [3, 4, 5, 6, 9]
    runs = [call for call in machine.told if call[0] != "await_run"]
    assert runs == [
        ("enter", STATE, 2, 5),
        ("run_share", STATE, 2, 3, 5),
        ("enter", STATE, 2, 9),
        ("run_share", STATE, 2, 3, 9),
    ]
    assert machine.get(STATE, "SERVING") == [4]
    assert machine.get(worker_at(STATE, 2), "SERVED") == [0]
    machine.told.clear()
    machine.set(worker_at(STATE, 2), SERVED=1)  # another thread is this worker
    executor.serve(STATE, 2, 3)
    assert (machine.told, machine.get(STATE, "SERVING")) == ([], [4])


# Waiting.


@pytest.mark.parametrize("worker", [0, 1])
@pytest.mark.parametrize(
    ("soon", "spun", "alone", "calls"),
    [
        (True, False, False, []),
        (False, True, False, ["leave", "spin", "enter"]),
        (False, False, False, ["leave", "spin", "enter", "take", "leave", "sleep", "enter"]),
        (False, False, True, ["leave", "spin", "sleep", "enter"]),
    ],
)
def test_who_waits_is_outside_of_the_run_and_runs_what_is_left_before_it_sleeps(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    worker: int,
    soon: bool,
    spun: bool,
    alone: bool,
    calls: list[str],
) -> None:
    names = {"leave": "leave", "enter": "enter", "spin": "spin_until_done", "take": "take_tiles"}
    names |= {"sleep": "sleep_until_done"}
    replaced(machine, monkeypatch, "take_tiles", "sleep_until_done")
    asked: list[tuple[int, ...]] = []
    monkeypatch.setattr(walking, "is_done_soon", lambda *call: asked.append(call) or soon)
    monkeypatch.setattr(
        walking, "spin_until_done", lambda *call: machine.told.append(("spin_until_done", *call)) or spun
    )
    machine.shares(0, 8)
    command, units = machine.command(TILES=6, ALONE=int(alone)), 0 if alone else 6
    assert walking._await_command(STATE, worker, 2, 9, command, SCRATCH, EVENTS, 3) is True
    assert asked == [(STATE, 2, 9, units)]
    expected = [names[call] for call in calls if worker or call not in ("leave", "enter")]
    assert [call[0] for call in machine.told] == expected
    whole = {
        "leave": (STATE, worker),
        "enter": (STATE, worker, 3),
        "spin_until_done": (STATE, worker, 2, 9, units),
        "take_tiles": (STATE, worker, 2, 9, command, SCRATCH, EVENTS, tiles.REST),
        "sleep_until_done": (STATE, 2, 9, units),
    }
    assert all(tuple(call[1:]) == whole[call[0]] for call in machine.told)


@pytest.mark.parametrize("spun", [True, False])
def test_who_cannot_enter_again_goes(machine: Machine, monkeypatch: pytest.MonkeyPatch, spun: bool) -> None:
    replaced(machine, monkeypatch, "take_tiles", "sleep_until_done")
    monkeypatch.setattr(walking, "is_done_soon", lambda *call: False)
    monkeypatch.setattr(walking, "spin_until_done", lambda *call: spun)
    monkeypatch.setattr(walking, "enter", lambda *call: False)
    command = machine.command()
    assert walking._await_command(STATE, 1, 2, 9, command, SCRATCH, EVENTS, 3) is False
    assert machine.told == [("leave", STATE, 1)]  # and takes no tiles
    assert walking._await_command(STATE, 0, 2, 9, command, SCRATCH, EVENTS, 3) is True


def test_commands_of_the_caller_are_awaited_by_others_where_it_says_that_they_are_done(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    awaited: list[tuple[int, ...]] = []
    monkeypatch.setattr(walking, "_await_command", lambda *call: awaited.append(call) or len(awaited) < 3)
    machine.program(5)
    machine.set(STATE, BASE=20, EVENTS=EVENTS)
    commands = [
        machine.command(number, ALONE=alone, ARRIVE=arrive)
        for number, (alone, arrive) in enumerate([(0, 0), (0, 0), (1, 0), (1, 1), (0, 0)])
    ]

    def row_of(step: int, worker: int) -> int:
        return at(EVENTS, (step * 2 + worker) * layout.EVENT_SLOTS)

    assert walking._await_commands(STATE, 0, 2, 20, 1, 5, commands[1], 3) is True
    assert awaited == [
        (STATE, 0, 2, 21 + step, commands[step], SCRATCH, row_of(step, 0), 3) for step in (1, 4)
    ]
    awaited.clear()
    assert walking._await_commands(STATE, 1, 2, 20, 1, 4, commands[1], 3) is True
    assert awaited == [
        (STATE, 1, 2, 21 + step, commands[step], SCRATCH + 1000, row_of(step, 1), 3) for step in (1, 3)
    ]
    awaited.clear()
    machine.set(STATE, EVENTS=0)
    assert (
        walking._await_commands(STATE, 1, 2, 20, 0, 5, commands[0], 3) is False
    )  # the third says that it is over
    assert [(call[3], call[6]) for call in awaited] == [(21, 0), (22, 0), (24, 0)]


# A worker's walk.


def walk(machine: Machine, patch: pytest.MonkeyPatch, worker: int, events: int) -> list[tuple[Any, ...]]:
    """Four commands: shared, of the caller alone, shared and after both, of the caller alone at the end."""
    replaced(machine, patch, "take_tiles", "run_on_caller", "_say_met")
    patch.setattr(walking, "_await_commands", lambda *call: machine.told.append(("await", *call)) or True)
    machine.program(4)
    machine.set(PROGRAM, SHARED=3)
    machine.set(STATE, BASE=20, EVENTS=events)
    for number, (alone, arrive, wait) in enumerate([(0, 0, 0), (1, 1, 0), (0, 0, 2), (1, 0, 1)]):
        machine.command(number, ALONE=alone, ARRIVE=arrive, AWAIT=wait)
    machine.told.clear()
    walking.run_share(STATE, worker, 2, 5)
    return machine.told


def commands(count: int) -> list[int]:
    return [at(COMMAND, number * layout.COMMAND_SLOTS) for number in range(count)]


@pytest.mark.parametrize("events", [0, EVENTS])
def test_the_caller_runs_shared_commands_and_those_of_its_own(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, events: int
) -> None:
    found = walk(machine, monkeypatch, 0, events)
    first, second, third, fourth = commands(4)
    rows = [at(events, 2 * step * layout.EVENT_SLOTS) if events else 0 for step in range(4)]
    met = [("_say_met", events, 2, 0, 2), ("_say_met", events, 2, 2, 4)] if events else [None, None]
    expected = [
        ("take_tiles", STATE, 0, 2, 21, first, SCRATCH, rows[0], 0),
        ("run_on_caller", second, REQUEST, SCRATCH, rows[1]),
        ("arrive", STATE, 22),
        ("await", STATE, 0, 2, 20, 0, 2, first, 5),
        met[0],
        ("take_tiles", STATE, 0, 2, 23, third, SCRATCH, rows[2], 0),
        ("run_on_caller", fourth, REQUEST, SCRATCH, rows[3]),
        ("await", STATE, 0, 2, 20, 2, 3, third, 5),
        met[1],
    ]
    assert found == [call for call in expected if call is not None]
    assert machine.memory[0] == 0


@pytest.mark.parametrize("events", [0, EVENTS])
def test_others_run_shared_commands_and_leave_with_the_last(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, events: int
) -> None:
    found = walk(machine, monkeypatch, 1, events)
    first, _, third, _ = commands(4)
    rows = [at(events, (2 * step + 1) * layout.EVENT_SLOTS) if events else 0 for step in range(4)]
    assert found == [
        ("take_tiles", STATE, 1, 2, 21, first, SCRATCH + 1000, rows[0], 0),
        ("await", STATE, 1, 2, 20, 0, 2, first, 5),
        ("take_tiles", STATE, 1, 2, 23, third, SCRATCH + 1000, rows[2], tiles.LAST),
    ]
    assert machine.memory[0] == 0


def test_rows_of_events_begin_empty_and_with_the_command(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(8):
        names = dict.fromkeys(("BEGIN", "END", "MET", "TILES_RUN", "TILES_STOLEN"), 9)
        machine.set(at(EVENTS, number * layout.EVENT_SLOTS), **names)
    walk(machine, monkeypatch, 1, EVENTS)
    rows = [at(EVENTS, number * layout.EVENT_SLOTS) for number in range(8)]
    found = [machine.get(each, "BEGIN", "END", "MET", "TILES_RUN", "TILES_STOLEN") for each in rows]
    assert found == [[9] * 5, [101, 101, 9, 0, 0], *[[9] * 5] * 3, [102, 102, 9, 0, 0], *[[9] * 5] * 2]


@pytest.mark.parametrize("worker", [0, 1])
def test_a_worker_goes_where_the_run_is_over(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, worker: int
) -> None:
    walk(machine, monkeypatch, worker, 0)
    monkeypatch.setattr(walking, "_await_commands", lambda *call: False)
    machine.told.clear()
    walking.run_share(STATE, worker, 2, 5)
    assert [call[0] for call in machine.told if call[0] == "take_tiles"] == ["take_tiles"]


# The end.


def stopping(machine: Machine, patch: pytest.MonkeyPatch, free: list[bool]) -> list[tuple[Any, ...]]:
    """Let a pool with two workers end, of whom one goes each time that they are woken."""

    def fetch_add(address: int, value: int) -> int:
        assert machine.get(STATE, "STOP") == [1]
        machine.memory[address] += value
        machine.set(STATE, SERVING=machine.get(STATE, "SERVING")[0] - 1)
        return 0

    replaced(machine, patch, "unlock", "unpark", "yield_processor")
    patch.setattr(executor, "try_lock", lambda *call: machine.told.append(("try_lock", *call)) or free.pop(0))
    patch.setattr(executor, "fetch_add", fetch_add)
    machine.set(STATE, SERVING=2, GENERATION=8)
    executor.stop(STATE, 2)
    return machine.told


def test_workers_end_and_the_pool_can_start_again(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    turn, generation = at(STATE, layout.TURN), at(STATE, layout.GENERATION)
    woken = [("unpark", generation, executor.EVERYBODY), ("yield_processor",)]
    assert stopping(machine, monkeypatch, [False, True]) == [
        ("try_lock", turn),
        ("yield_processor",),
        ("try_lock", turn),
        *woken,
        *woken,
        ("unlock", turn),
    ]
    assert machine.get(STATE, "STOP", "SERVING", "GENERATION") == [0, 0, 12]


def test_workers_of_a_run_that_is_long_go_on(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    found = stopping(machine, monkeypatch, [False] * 9)
    assert [call[0] for call in found] == ["try_lock", "yield_processor"] * 2 + ["try_lock"]
    assert machine.get(STATE, "STOP", "SERVING", "GENERATION") == [0, 2, 8]


# Repeats.

REPEAT, MOTION, ENTRY, WORD = (1 << 29) + 4096, (1 << 29) + 8192, (1 << 29) + 12288, (1 << 29) + 16384


def test_what_moves_begins_anew_with_each_repeat(machine: Machine) -> None:
    machine.set(REPEAT, MOTIONS=MOTION, MOTION_COUNT=2, TIMES=3)
    for number, step in enumerate((16, -8)):
        row = at(MOTION, number * layout.MOTION_SLOTS)
        machine.set(row, MOTION_SLOT=at(ENTRY, number), MOTION_STEP=step, MOTION_FIRST=1000)
    for _ in range(2):
        repeats.begin_repeat(REPEAT)
        seen = [[machine.memory[at(ENTRY, number)] for number in range(2)]]
        while repeats.times_left(REPEAT):
            assert repeats.move_on(REPEAT) == len(seen)
            seen.append([machine.memory[at(ENTRY, number)] for number in range(2)])
        assert seen == [[1000, 1000], [1016, 992], [1032, 984]]


@pytest.mark.parametrize(
    ("ended", "within", "way"),
    [
        (0, 0, repeats.GOES_ON),
        (9, 1, repeats.GOES_ON),  # in a run before, or when it was begun before
        (20, 0, repeats.ENDS),
        (20, 1, repeats.ENDS),
        (25, 0, repeats.GOES_ON),  # only later
        (25, 1, repeats.IS_LATE),  # later, but perhaps here too
    ],
)
def test_others_follow_where_the_caller_ended_a_repeat(
    machine: Machine, ended: int, within: int, way: int
) -> None:
    machine.set(REPEAT, ENDED=WORD, INSIDE_ANOTHER=within)
    machine.memory[WORD] = ended
    assert repeats.way_of_others(REPEAT, 20) == way
    repeats.note_end(REPEAT, 30)
    assert machine.memory[WORD] == 30
