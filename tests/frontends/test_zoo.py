"""The zoo: every entry builds, is deterministic, and is what its entry says."""

import numpy as np
import pytest
from onnx import numpy_helper

from autotune.errors import UsageError
from autotune.frontends import zoo

SMALL = ["tiny_cnn", "mlp", "squeezenet", "encoder"]


def parameters(model):
    return sum(int(np.prod(t.dims)) for t in model.graph.initializer if t.data_type == 1)


@pytest.mark.parametrize("name", SMALL)
def test_entry_tells_the_truth(name):
    entry, model = zoo.info(name), zoo.load(name)
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    assert tuple(shape) == entry.input_shape
    assert parameters(model) == entry.parameters
    assert entry.megabytes == pytest.approx(entry.parameters * 4 / 1e6)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(zoo.names()) - set(SMALL)))
def test_large_entry_tells_the_truth(name):
    test_entry_tells_the_truth(name)


def test_weights_are_the_same_every_time():
    first, second = zoo.load("squeezenet"), zoo.load("squeezenet")
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(deterministic=True)


def test_light_models_have_weights_instead_of_fills():
    model = zoo.load("squeezenet")
    assert "ConstantOfShape" not in {node.op_type for node in model.graph.node}
    weights = [numpy_helper.to_array(t) for t in model.graph.initializer if len(t.dims) == 4]
    assert all(w.std() > 0 for w in weights)


def test_unknown_name_lists_those_there_are():
    with pytest.raises(UsageError) as error:
        zoo.load("resnet5000")
    assert str(error.value) == (
        "no zoo model is called 'resnet5000'\n  there are: resnet50, squeezenet, densenet121, "
        "inception_v1, inception_v2, shufflenet, vgg19, bvlc_alexnet, zfnet512, mobilenetv2, mlp, "
        "encoder, encoder_base, tiny_cnn; did you mean 'resnet50'?"
    )
