"""The search for placements on made-up costs, on real ones, and whole."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest

import autotune
from autotune.cli.main import run as run_cli
from autotune.compiler import CompileRequest, compile_in_detail
from autotune.compiler.devices.memory import shortage
from autotune.compiler.dividing import imported
from autotune.database import Database
from autotune.database.records import DEVICES
from autotune.errors import UsageError
from autotune.runtime.hal.cpu.cores import core_ids
from autotune.runtime.hal.rates import DeviceRates
from autotune.tuning.compare.decide import CompiledVersions
from autotune.tuning.measure.whole_model import Profile
from autotune.tuning.placement import place as place_module
from autotune.tuning.placement.answer import PlacementReading, placement_key
from autotune.tuning.placement.costs import DeviceCosts, PlacementCosts, Placing, Unit
from autotune.tuning.placement.place import place
from autotune.tuning.placement.placing import known_devices, parse_placement
from autotune.tuning.placement.search import search_placements
from tests.graph.graphs import small_convnet
from tests.product import write_convolutions

two_devices = pytest.mark.skipif(len(core_ids()) < 2, reason="one core is no two devices")
OPS = ("Conv", "Relu", "Conv", "Add", "Gemm", "Softmax")


def test_a_search_finds_the_best_of_all():
    rng = np.random.default_rng(0)
    seconds, border = rng.uniform(1, 2, (len(OPS), 3)), 0.3

    def estimate(placing: Placing) -> float:
        work = sum(seconds[unit, device] for unit, device in enumerate(placing))
        return float(work + border * sum(a != b for a, b in itertools.pairwise(placing)))

    best = min(itertools.product(range(3), repeat=len(OPS)), key=estimate)
    found = search_placements(estimate, OPS, 3, seed=1)
    assert found[0].placing == best
    assert found[0].seconds == estimate(best)
    assert {(d,) * len(OPS) for d in range(3)} <= {each.placing for each in found}
    assert [each.seconds for each in found] == sorted(each.seconds for each in found)


def test_a_search_ends_and_asks_no_more_than_it_may():
    asked: list[Placing] = []

    def estimate(placing: Placing) -> float:
        asked.append(placing)
        return 1.0

    search_placements(estimate, OPS, 2, evaluations=20)
    assert len(asked) == len(set(asked)) <= 22
    assert len(search_placements(lambda placing: 1.0, ("Conv",), 2)) == 2
    assert [each.placing for each in search_placements(lambda placing: 1.0, (), 2)] == [()]


def costs(seconds: dict[str, tuple[float, float]], memory: int = 1 << 30) -> PlacementCosts:
    """A small net whose operators take so long on two devices."""
    graph = imported(small_convnet(), None)
    units = [
        Unit(node.origins, node.op, seconds.get(node.op, (0.0, 0.0)))
        for node in graph.nodes
        if set(node.present_inputs) - set(graph.constants)
    ]
    rates = DeviceRates(0.0, 0.0, 0.0)
    names = ("cpu:0", "cpu:1")
    return PlacementCosts(
        graph, tuple(units), tuple(DeviceCosts(n, 0.0, rates, "host", memory) for n in names)
    )


def test_the_estimate_of_one_device_is_the_sum_of_its_parts():
    made = costs({"Conv": (2.0, 5.0), "Gemm": (1.0, 0.25)})
    ops = [unit.op for unit in made.units]
    convs, gemms = ops.count("Conv"), ops.count("Gemm")
    assert convs
    assert gemms
    assert made.seconds((0,) * len(ops)) == pytest.approx(2.0 * convs + gemms)
    assert made.seconds((1,) * len(ops)) == pytest.approx(5.0 * convs + 0.25 * gemms)
    apart = tuple(int(op == "Gemm") for op in ops)
    assert made.seconds(apart) == pytest.approx(2.0 * convs + 0.25 * gemms)


def test_a_device_with_too_little_memory_is_not_chosen():
    made = costs({"Conv": (2.0, 5.0)}, memory=16)
    assert made.seconds((0,) * len(made.units)) == float("inf")


@pytest.mark.parametrize("slow", [0, 1])
def test_a_search_moves_away_from_a_slow_device(slow):
    seconds = (9.0, 1.0) if slow == 0 else (1.0, 9.0)
    made = costs(dict.fromkeys(("Conv", "Relu", "Add", "Gemm"), seconds))
    best = search_placements(made.seconds, tuple(unit.op for unit in made.units), 2)[0]
    used = {device for unit, device in zip(made.units, best.placing, strict=True) if sum(unit.seconds)}
    assert used == {1 - slow}


@two_devices
def test_rules_say_what_was_searched():
    made = costs({})
    placing = tuple(number % 2 for number in range(len(made.units)))
    done = compile_in_detail(CompileRequest(small_convnet(), placement=made.rules(placing)))
    assert done.affinities is not None
    homes = done.affinities.homes.nodes
    device_of = {name: f"cpu:{d}" for u, d in zip(made.units, placing, strict=True) for name in u.nodes}
    for node in made.graph.nodes:
        for origin in node.origins:
            if origin in device_of:
                assert homes[node.present_outputs[0]].device == device_of[origin]


@pytest.mark.parametrize(
    ("devices", "problem"),
    [
        (["cpu", "gpu"], "there is no device 'gpu'"),
        (["cpu"], "on two devices or more, each named once: got cpu\n"),
        ([], "each named once: got none\n"),
        (["cpu", "cpu"], "each named once: got cpu, cpu\n"),
    ],
    ids=str,
)
def test_devices_may_be_wrong(devices, problem):
    with pytest.raises(UsageError) as caught:
        place(small_convnet(), devices)
    assert problem in str(caught.value)


def test_a_placement_is_read_from_a_file(tmp_path):
    path = tmp_path / "placement.json"
    path.write_text('{"Conv": "cpu:1"}')
    assert parse_placement((f"@{path}", "Gemm=cpu:0")) == {"Conv": "cpu:1", "Gemm": "cpu:0"}

    def refused(*texts: str) -> str:
        with pytest.raises(UsageError) as caught:
            parse_placement(texts)
        return str(caught.value)

    assert refused(f"@{path}", "Conv=cpu:0") == "--place Conv is given twice, with cpu:1 and cpu:0"
    assert "No such file" in refused(f"@{path}.none")
    path.write_text("[1]")
    assert "is no JSON object of patterns and devices" in refused(f"@{path}")
    path.write_text("{")
    assert "is no JSON: " in refused(f"@{path}")


def clocked(monkeypatch, seconds: dict[str, float]) -> None:
    """Have each part, and each whole run, take so long on each device, whatever else the machine does."""
    measured = place_module.measured_costs

    def costs_of(graph, programs, devices):
        found = measured(graph, programs, devices)
        each = tuple(seconds[device.name] for device in found.devices)
        units = tuple(replace(unit, seconds=each) for unit in found.units)
        still = DeviceRates(0.0, 0.0, 0.0)
        return replace(
            found, units=units, devices=tuple(replace(d, launch=0.0, rates=still) for d in found.devices)
        )

    def read(model, versions, rounds, out_of_time, watch=None):
        programs = [model.compiled(version) for version in versions]
        return [
            Profile.of_whole(np.full(rounds.most, 1e9 * sum(seconds[name] for name in program.devices)))
            for program in programs
        ]

    monkeypatch.setattr(place_module, "measured_costs", costs_of)
    monkeypatch.setattr(CompiledVersions, "read", read)


@two_devices
def test_a_slowed_device_is_left_from_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("AUTOTUNE_SLOWDOWN", "cpu:0=2")
    clocked(monkeypatch, {"cpu:0": 2e-3, "cpu:1": 1e-3})
    from autotune.runtime.hal import driver

    monkeypatch.setattr(driver, "_opened", {})
    path = tmp_path / "placement.json"
    model = write_convolutions(tmp_path / "two.onnx")
    devices, database = ["--devices", "cpu:0,cpu:1"], ["--db", str(tmp_path / "tuning.db")]
    Database(database[1]).close()
    assert (
        run_cli(["compile", model, *devices, *database, "--require-hit", "-o", str(tmp_path / "m.atm")]) == 1
    )
    assert "no placement of 'two' on cpu:0, cpu:1 was searched" in capsys.readouterr().err
    assert run_cli(["place", model, *devices, *database, "-o", str(path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["accepted"] > 0
    assert set(report["placement"].values()) == {"cpu:1"}
    with autotune.compile(model, placement=json.loads(path.read_text())) as module:
        assert module.devices == ("cpu:1",)
    with autotune.compile(model, devices=("cpu:1", "cpu:0"), database=database[1]) as module:
        assert module.devices == ("cpu:1",)
    assert run_cli(["compile", model, *devices, *database, "-o", str(tmp_path / "m.atm")]) == 0
    said = capsys.readouterr().out.splitlines()[1]
    assert said.startswith("placement on cpu:0, cpu:1: on cpu:1, searched ")
    assert said.endswith(" over all on cpu:0")
    with Database(database[1], read_only=True) as store:
        key = placement_key(imported(model, None), ("cpu:0", "cpu:1"), known_devices())
        first, *others = map(PlacementReading.of, store.compared_at(DEVICES, workload=key))
    assert (first.placement, first.won, first.ratio) == ({"*": "cpu:0"}, False, None)
    (used,) = (each for each in others if each.won)
    assert (used.placement, used.ratio.median < 1) == ({"*": "cpu:1"}, True)
    monkeypatch.delenv("AUTOTUNE_SLOWDOWN")  # another device: what was found for the slowed one is not of it
    assert run_cli(["explain", model, *devices, *database, "--affinity"]) == 0
    assert "placement on cpu:0, cpu:1: not searched, all of it is on cpu:0; " in capsys.readouterr().out


def test_placements_and_devices_exclude_each_other():
    with pytest.raises(UsageError) as caught:
        autotune.compile(small_convnet(), devices=("cpu:0", "cpu:1"), placement={"*": "cpu:0"})
    assert str(caught.value) == (
        "a placement and devices to look one up for were given\n  leave out one of them"
    )


def test_where_no_placement_fits_it_is_said_who_needs_what():
    made = costs({}, memory=300)
    needs = [made.needs((device,) * len(made.units)) for device in (0, 1)]
    assert [set(each) for each in needs] == [{"cpu:0"}, {"cpu:1"}]
    said = shortage("net", needs, made.memory)
    need = needs[0]["cpu:0"]
    assert said.splitlines()[:2] == [
        "no placement of 'net' on cpu:0, cpu:1 fits into their memory",
        f"  cpu:0 has 300 bytes; all of the model needs {need.total} bytes there: {need.constants} bytes of constants, "
        f"{need.values} bytes of values",
    ]


def test_devices_that_share_their_memory_must_fit_into_it_together():
    made = costs({})
    whole = made.needs((0,) * len(made.units))["cpu:0"].total
    halves = tuple(int(2 * unit >= len(made.units)) for unit in range(len(made.units)))
    parts = made.needs(halves)
    assert {*parts} == {"cpu:0", "cpu:1"}
    limit = max(need.total for need in parts.values())
    shared = costs({}, memory=limit)
    assert limit < whole
    assert shared.seconds(halves) == float("inf")
    apart = tuple(replace(device, pool=device.name) for device in shared.devices)
    assert replace(shared, devices=apart).seconds(halves) < float("inf")
