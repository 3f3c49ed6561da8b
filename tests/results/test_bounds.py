"""The distances of `python -m results.bench bounds`: workloads, their order, and the table."""

from autotune.bench.experiment import frame_of
from results.bench import bounds


def test_workloads_are_ordered_by_what_they_lose_of_their_case():
    (found,) = bounds.measure(lambda text: None, ["tiny_cnn", "GMM:1,16,16,16"], 1, 3)
    lost = [record["lost"] for record in found]
    assert lost == sorted(lost, reverse=True)
    assert {record["case"] for record in found} == {"model tiny_cnn", "GMM (1,16,16,16)"}
    assert all(record["count"] >= 1 and record["time_ns"] > 0 for record in found)
    (table,) = bounds.EXPERIMENT.tables(frame_of(found))
    assert len(table.rows) == len(found)


def test_dispatches_of_one_workload_are_one_row():
    (case,) = bounds.cases(["encoder"])
    found = bounds.distances(case, 1, 1)
    assert max(len(each.dispatches) for each in found) > 1
    assert all(each.lost <= sum(one.share for one in each.dispatches) for each in found)
