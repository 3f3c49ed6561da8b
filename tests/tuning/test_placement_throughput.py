"""Placements for throughput: the bottleneck of requests in flight, stages of a chain, and a whole search."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest

import autotune
from autotune.cli.main import run as run_cli
from autotune.compiler.devices.makespan import LaneTask
from autotune.compiler.devices.throughput import throughput
from autotune.compiler.dividing import imported, on_one_device
from autotune.database import Database
from autotune.database.records import DEVICES
from autotune.errors import UsageError
from autotune.runtime.hal.cpu.cores import core_ids
from autotune.runtime.hal.rates import DeviceRates
from autotune.tuning.measure.in_flight import keep_in_flight
from autotune.tuning.placement.aim import PlacementAim, aim_of
from autotune.tuning.placement.answer import PlacementReading, placement_key
from autotune.tuning.placement.costs import DeviceCosts, PlacementCosts, Unit
from autotune.tuning.placement.place import place
from autotune.tuning.placement.placing import known_devices
from autotune.tuning.placement.search import search_placements
from autotune.tuning.placement.stages import chain_stages, staged
from tests.graph.graphs import small_convnet
from tests.product import write_convolutions

two_devices = pytest.mark.skipif(len(core_ids()) < 2, reason="one core is no two devices")


def test_the_busiest_lane_is_the_bottleneck():
    tasks = [
        LaneTask("a", 2.0, submission=0.5),
        LaneTask("b", 3.0, (0,)),
        LaneTask("a", 1.5, (1,)),
        LaneTask(""),
    ]
    found = throughput(tasks, depth=4)
    assert (found.bottleneck, found.period, found.alone, found.submissions) == ("a", 3.5, 7.0, 3)
    assert throughput(tasks, depth=1).period == 7.0  # nothing overlaps
    assert throughput([LaneTask("a", 0.1, submission=9.0)], 10).bottleneck == "the caller"


def test_devices_that_share_cores_are_one_lane():
    tasks = [
        LaneTask("cpu", 2.0, cores=frozenset({0, 1})),
        LaneTask("cpu:0", 3.0, cores=frozenset({0})),
        LaneTask("cpu:1", 4.0, cores=frozenset({1})),
    ]
    found = throughput(tasks, depth=9)
    assert (found.bottleneck, found.period) == ("cores of cpu and cpu:1", 6.0)


@pytest.mark.parametrize("seed", range(5))
def test_stages_are_the_best_of_all_cuts(seed):
    rng = np.random.default_rng(seed)
    seconds, launches = rng.uniform(0, 2, (7, 3)), rng.uniform(0, 0.3, 3)
    crossing = rng.uniform(0, 3, (8, 3, 3))

    def slowest(placing: tuple[int, ...]) -> float:
        stages = [(device, [*units]) for device, units in itertools.groupby(range(7), placing.__getitem__)]
        if len({device for device, _ in stages}) < len(stages):
            return np.inf
        work = [seconds[units, device].sum() + launches[device] for device, units in stages]
        moved = [crossing[b[1][0], a[0], b[0]] for a, b in itertools.pairwise(stages)]
        return float(max([*work, *moved]))

    best = min(map(slowest, itertools.product(range(3), repeat=7)))
    assert slowest(chain_stages(seconds, launches, crossing)) == pytest.approx(best)
    assert chain_stages(np.zeros((0, 2)), [0.0, 0.0], np.zeros((1, 2, 2))) == ()


def costs(spaces: tuple[str, str], copy: float) -> PlacementCosts:
    """A small net whose units take a second each, on two devices."""
    from autotune.compiler.dividing import imported

    graph = imported(small_convnet(), None)
    units = tuple(
        Unit(node.origins, node.op, (1.0, 1.0))
        for node in graph.nodes
        if set(node.present_inputs) - set(graph.constants)
    )
    rates = DeviceRates(0.0, 0.0, copy)
    devices = (DeviceCosts(f"cpu:{n}", 0.0, rates, spaces[n], 1 << 30) for n in range(2))
    return PlacementCosts(graph, units, tuple(devices))


def test_a_search_for_throughput_divides_the_work_and_one_for_latency_does_not():
    made = costs(("host", "host"), 0.0)
    count, ops = len(made.units), tuple(unit.op for unit in made.units)
    aim = aim_of("throughput", None, 2)
    assert aim.in_flight == 3
    assert sorted(staged(made)) == [0] * (count // 2) + [1] * (count - count // 2)
    found = search_placements(lambda p: aim.score(made, p), ops, 2, starts=aim.starts(made))
    best = made.throughput(found[0].placing, 3)
    assert best is not None
    assert best.period < 0.7 * count
    assert best.submissions == 2  # no more pieces than devices: every cut has to gain something
    assert PlacementAim().seconds(made, found[0].placing) == pytest.approx(
        count
    )  # a chain has nothing to overlap


def test_what_crosses_is_not_cut_where_copies_take_long():
    assert {*staged(costs(("host", "far"), 1.0))} == {0}
    assert {*staged(costs(("host", "host"), 1.0))} == {0, 1}


def test_memory_of_all_requests_in_flight_counts():
    made = costs(("host", "host"), 0.0)
    whole = (0,) * len(made.units)
    two, three = made.needs(whole, 2)["cpu:0"], made.needs(whole, 3)["cpu:0"]
    assert (two.constants, 3 * two.values) == (three.constants, 2 * three.values)
    assert made.throughput(whole, 4) is not None
    small = replace(made, devices=tuple(replace(device, memory_bytes=two.total) for device in made.devices))
    assert small.throughput(whole, 2) is not None
    assert small.throughput(whole, 3) is None


def test_aims_may_be_wrong():
    with pytest.raises(UsageError, match="the aim of a placement is latency or throughput, got 'speed'"):
        place(small_convnet(), ["cpu", "cpu:0"], aim="speed")
    with pytest.raises(UsageError, match=r"requests in flight \(4\) are of the aim throughput"):
        aim_of("latency", 4, 2)
    with pytest.raises(UsageError, match="takes 2 requests in flight or more, got 1"):
        aim_of("throughput", 1, 2)


@two_devices
def test_requests_are_kept_in_flight():
    with autotune.compile("zoo:tiny_cnn", placement={"Conv": "cpu:1", "*": "cpu:0"}) as module:
        arrays = [np.zeros(spec.shape, spec.dtype) for spec in module.inputs]
        flow = keep_in_flight(module, arrays, 3, 10)
        assert flow.latencies_ns.shape == (10,)
        assert 0 < flow.period_ns < flow.latencies_ns.max()


@two_devices
def test_stages_are_searched_from_the_command_line(tmp_path, capsys):
    path = tmp_path / "placement.json"
    model = write_convolutions(tmp_path / "two.onnx")
    command = ["place", model, "--devices", "cpu:0,cpu:1", "--aim", "throughput", "-o", str(path), "--json"]
    assert run_cli([*command, "--db", str(tmp_path / "new.db")]) == 0
    report = json.loads(capsys.readouterr().out)
    with Database(tmp_path / "new.db", read_only=True) as database:
        graph, infos = on_one_device(imported(model, None)), known_devices()
        of_one_run = placement_key(graph, ["cpu:0", "cpu:1"], infos)
        assert database.compared_at(DEVICES, workload=of_one_run) == []
        stored = database.compared_at(DEVICES, workload=aim_of("throughput", None, 2).key(of_one_run))
        kept = [PlacementReading.of(row) for row in stored]
        assert [dict(each.placement) for each in kept] == [each["placement"] for each in report["measured"]]
        assert [each.won for each in kept].index(True) == report["accepted"]
    assert (report["aim"], report["in_flight"]) == ("throughput", 3)
    assert report["measured"][0]["alone_seconds"] is None
    assert all(each["alone_seconds"] > 0 for each in report["measured"][1:])
    trace = tmp_path / "t.json"
    rules = ["--place", "Conv=cpu:1", "--place", "*=cpu:0"]
    assert run_cli(["run", model, "--random", *rules, "--trace", str(trace), "--requests", "5"]) == 0
    events = json.loads(trace.read_text())["traceEvents"]
    assert {event["args"]["request"] for event in events if event["ph"] == "X"} == {*range(5)}
    capsys.readouterr()
    assert run_cli(["run", model, "--random", "--trace", str(trace), "--requests", "5"]) == 2
    assert "--requests is for models on several devices: name them with --place" in capsys.readouterr().err
    assert run_cli(["run", model, "--random", "--requests", "5"]) == 2
