"""The experiment on the pages of ``autotune serve``, with a small database."""

from __future__ import annotations

import pytest

from autotune.bench.experiment import frame_of
from results.bench import pages
from results.bench.chromium import binary


@pytest.mark.slow
def test_each_page_is_asked_for() -> None:
    said: list[str] = []
    found = list(pages.measure(said.append, 600, 5, 1))
    assert {record["page"] for rows in found for record in rows} <= {*said}
    records = [record for rows in found for record in rows]
    assert all(record["bytes"] > 500 for record in records if "seconds" in record)
    painted = {record["page"] for record in records if record.get("painted", 0.0) > 0.0}
    assert len(painted) == (0 if binary() is None else len({record["page"] for record in records}) - 2)
    (table,) = pages.EXPERIMENT.tables(frame_of(records))
    assert [row[0] for row in table.rows] == list(dict.fromkeys(record["page"] for record in records))
