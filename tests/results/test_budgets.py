"""The errors of `python -m results.bench budgets`: models, inputs that were not given, and the table."""

from autotune.bench.experiment import frame_of
from results.bench import budgets
from results.bench.quantised.networks import NETWORKS


def test_a_model_is_judged_by_inputs_that_were_not_given() -> None:
    (found,) = budgets.measure(lambda text: None, ["perceptron"], 1, 4, 3, ["0.2"])
    (record,) = found
    assert record["unseen"] <= 0.2
    assert record["held_back"] <= record["limit"] == 0.2
    assert record["predicted_ns"] <= record["float32_ns"]
    (table,) = budgets.EXPERIMENT.tables(frame_of(found))
    assert table.title == "Budgets, 1 thread"
    assert "1 within the budget on held-back inputs" in table.notes[0]


def test_there_are_twenty_models_with_inputs_of_their_shapes() -> None:
    assert len(budgets.NAMES) == 20
    for name in NETWORKS:
        model, inputs = budgets.material(name, 3)
        (array,) = inputs.values()
        dims = model.graph.input[0].type.tensor_type.shape.dim
        assert array.shape == (3 * dims[0].dim_value, *(dim.dim_value for dim in dims[1:]))
