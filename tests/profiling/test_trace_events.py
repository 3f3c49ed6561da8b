"""Traces: rows that are named, complete events and counters of the Trace Event Format."""

from __future__ import annotations

import json

import numpy as np

import autotune
from autotune.profiling.trace_events import trace_of
from autotune.runtime.recording import Recording
from tests.profiling.made_up import on_cpu, on_two_devices


def rows(trace) -> dict[tuple[int, int], str]:
    """Names of rows by process and thread."""
    return {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in trace["traceEvents"]
        if event["name"] == "thread_name"
    }


def test_devices_are_processes_and_workers_threads() -> None:
    trace = trace_of(on_two_devices())
    assert json.loads(json.dumps(trace)) == trace
    named = [event for event in trace["traceEvents"] if event["name"] == "process_name"]
    assert [(event["pid"], event["args"]["name"]) for event in named] == [(0, "cpu"), (1, "opencl:0")]
    assert rows(trace) == {(0, 0): "queue", (0, 1): "worker 0", (0, 2): "worker 1", (1, 0): "queue"}


def test_events_are_in_their_rows_in_microseconds_from_the_beginning() -> None:
    found = [event for event in trace_of(on_two_devices(), [1])["traceEvents"] if event["ph"] == "X"]
    assert [(e["name"], e["pid"], e["tid"], e["ts"], e["dur"]) for e in found] == [
        ("made_up", 0, 0, 0.0, 9.0),
        ("000_conv", 0, 1, 0.0, 4.0),
        ("000_conv", 0, 2, 0.0, 3.0),
        ("000_conv", 0, 1, 4.0, 3.0),
        ("000_conv", 0, 2, 4.0, 4.0),
        ("001_relu", 0, 1, 8.0, 1.0),
        ("transfer t", 1, 0, 10.0, 2.0),
        ("run y", 1, 0, 12.0, 5.0),
    ]
    assert found[4]["args"] == {
        "kind": "convolution",
        "tiles": 3,
        "stolen": 1,
        "nodes": [*"abcd"],
        "request": 1,
    }
    assert found[6]["args"] == {"bytes": 4096, "request": 1}


def test_counters_say_how_many_workers_are_busy_and_what_was_stolen() -> None:
    counters: dict[str, list[tuple[float, int]]] = {}
    for event in trace_of(on_cpu())["traceEvents"]:
        if event["ph"] == "C":
            counters.setdefault(event["name"], []).append((event["ts"], *event["args"].values()))
    assert counters == {
        "busy workers": [(0.0, 2), (3.0, 1), (4.0, 2), (7.0, 1), (8.0, 1), (9.0, 0)],
        "tiles stolen": [(0.0, 0), (8.0, 1)],
    }


def test_a_real_run_keeps_the_rules_of_the_format() -> None:
    with autotune.compile("zoo:tiny_cnn", threads=1) as module:
        trace = trace_of(module.recording([np.zeros((1, 3, 16, 16), np.float32)]))
        names = {dispatch.name for dispatch in module.dispatches}
    events = trace["traceEvents"]
    complete = [event for event in events if event["ph"] == "X"]
    assert {event["name"] for event in complete} == {*names, "tiny_cnn"}
    assert all(event["ts"] >= 0 and event["dur"] >= 0 for event in complete)
    assert {(event["pid"], event["tid"]) for event in complete} == {*rows(trace)}
    busy = [event["args"]["busy workers"] for event in events if event["name"] == "busy workers"]
    assert (min(busy), max(busy), busy[-1]) == (0, 1, 0)
    assert all(isinstance(event["name"], str) and event["ph"] in "XMC" for event in events)


def test_nothing_recorded_is_an_empty_trace() -> None:
    empty = Recording("nothing", np.zeros(1, np.int64), ())
    assert trace_of(empty) == {"displayTimeUnit": "ns", "traceEvents": []}
