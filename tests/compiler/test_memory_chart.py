"""The picture of a memory plan: every value of it once, where it is and as long as it lives."""

from xml.etree import ElementTree

import pytest

from autotune.compiler.memory.chart import memory_svg
from autotune.frontends.onnx.importer import load
from autotune.graph.build import GraphBuilder
from autotune.passes.memory.plan_memory import plan_memory, value_lifetimes
from autotune.passes.partition import OF_A_MODEL, partition
from autotune.passes.pipeline import run_passes, standard_passes

SVG = "{http://www.w3.org/2000/svg}"


def drawn(graph):
    parts = partition(run_passes(graph, standard_passes()), OF_A_MODEL)
    plan = plan_memory(value_lifetimes(parts))
    return parts, plan, ElementTree.fromstring(memory_svg(parts, plan))


@pytest.mark.parametrize("model", ["tiny_cnn", "squeezenet"])
def test_a_box_for_each_value(model):
    parts, plan, picture = drawn(load(f"zoo:{model}"))
    boxes = {}
    for group in picture.iter(f"{SVG}g"):
        title, box = group.find(f"{SVG}title").text, group.find(f"{SVG}rect")
        boxes[title.partition(":")[0]] = [float(box.attrib[key]) for key in ("x", "y", "width", "height")]
    assert boxes.keys() == plan.offsets.keys()
    step = (float(picture.attrib["width"]) - 100) / len(parts.dispatches)
    per_byte = 480 / plan.arena_bytes
    for value in plan.lifetimes:
        x, y, width, height = boxes[value.name]
        assert x == pytest.approx(80 + value.first * step, abs=0.1)
        assert width == pytest.approx((value.last - value.first + 1) * step, abs=0.1)
        assert height == pytest.approx(value.nbytes * per_byte, abs=0.01)
        assert y + height == pytest.approx(520 - plan.offsets[value.name] * per_byte, abs=0.02)


def test_names_of_the_model_are_in_it_and_quoted():
    b = GraphBuilder("a<b")
    x = b.input("x", (4, 8))
    rows = b.node("Softmax", x, axis=1, name='rows & "more"')
    picture = drawn(b.graph(b.node("Softmax", rows, axis=0, name="y")))[2]
    titles = [element.text for element in picture.iter(f"{SVG}title")]
    assert titles == ['rows & "more": 128 bytes at 0\nfrom 000_softmax to 001_softmax']
    (headline, *_) = (element.text for element in picture.iter(f"{SVG}text"))
    assert headline == "a<b: arena of 128 B, at most 128 B live at once (1.00x); 1 value"


def test_a_model_without_an_arena():
    b = GraphBuilder("one")
    parts, _, picture = drawn(b.graph(b.node("Relu", b.input("x", (4,)))))
    assert len(parts.dispatches) == 1
    assert not list(picture.iter(f"{SVG}g"))
