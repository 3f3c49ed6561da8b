"""The lines that say of the nodes of a fleet how they do."""

from __future__ import annotations

from dataclasses import replace

from autotune.tuning.fleet.node import FleetNode, NodeState
from autotune.tuning.report.nodes import node_lines
from tests.cli.test_report import REPORT, ROW, report_of


def test_a_line_for_each_node_names_what_it_has_timed_of_what_is_used() -> None:
    one = FleetNode("vm/1", NodeState.MEASURING, measurements=30, busy_s=9.0, stolen_s=2.4)
    one.same_code.extend([0.01, -0.02, 0.02])
    lost = FleetNode("vm/2", NodeState.LOST, "it was killed", set_aside=1)
    said = {"nodes": [one.to_json() | {"served_s": 10.0}, lost.to_json()]}
    lines = [
        "vm/1: measuring, 30 measured (3 a second, busy for 90%), noise 2.0%, stolen 2 s",
        "vm/2: lost (it was killed), 0 measured, 1 set aside, stolen 0 s",
    ]
    assert [*node_lines(said)] == lines
    report = report_of(replace(ROW, name="000_conv", host="vm/1"), replace(ROW, name="001_pool"))
    assert [*node_lines(said, report)] == [
        f"{lines[0]}; of what is used it has timed 000_conv",
        lines[1],
    ]
    assert [*node_lines({}, REPORT)] == []
