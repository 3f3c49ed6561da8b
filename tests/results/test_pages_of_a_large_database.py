"""The experiment on the pages of ``autotune serve``, with a small database."""

from __future__ import annotations

import pytest

from autotune.bench.experiment import frame_of
from results.bench import pages


@pytest.mark.slow
def test_each_page_is_asked_for() -> None:
    said: list[str] = []
    found = list(pages.measure(said.append, 600, 5, 1))
    assert {record["page"] for rows in found for record in rows} <= {*said}
    assert all(record["bytes"] > 500 for rows in found for record in rows)
    (table,) = pages.EXPERIMENT.tables(frame_of([record for rows in found for record in rows]))
    assert len(table.rows) == len(found)
