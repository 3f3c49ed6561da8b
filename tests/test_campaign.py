"""Campaigns of many seeds: what dies is a finding, and a record goes on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from autotune.workers.process import Died
from tests import campaign
from tests.hangs import hang, only_hangs_take_time


def check(seed: int) -> campaign.Line:
    if seed == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if seed == 4:
        hang()
    return {"then": "double"} if seed == 5 else {"by": os.getpid()}


def ended(step: str, death: Died) -> campaign.Line:
    return {"finding": f"{step}: {death}"}


WORK = campaign.Work(check, {"double": lambda seed: {"is": 2 * seed}}, ended, seconds=0.5)


def test_a_campaign_goes_on_and_what_dies_is_a_finding(tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    record.write_text('{"seed": 0, "is": "known"}\n{"seed": 1, "by', encoding="utf-8")
    (tmp_path / "hanging").mkdir()
    with only_hangs_take_time(tmp_path / "hanging"):
        found = campaign.run(__name__, range(7), 1, record)
    assert [*found] == [*range(7)]
    assert found[0] == {"seed": 0, "is": "known"}
    assert found[1]["by"] == found[2]["by"] != found[6]["by"]
    assert found[3] == {"seed": 3, "finding": "check: the worker died (SIGKILL)"}
    assert found[4] == {"seed": 4, "finding": "check: check took longer than 0.5 s"}
    assert found[5] == {"seed": 5, "is": 10}
    assert campaign.run(__name__, range(7), 1, record) == found  # all are known: nothing runs
