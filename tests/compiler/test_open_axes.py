"""Models whose height and width are open: at every size the answer of the model compiled for exactly that size."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.compiler.dynamic.buckets import SizeRange, buckets
from autotune.compiler.dynamic.grown import GrownExtents
from autotune.errors import InputError, ModelImportError, PaddingError, UndecidedExtentError
from autotune.frontends.models import load
from autotune.graph import evaluate
from autotune.passes.algorithms.strassen import Strassen
from autotune.passes.pipeline import run_passes, standard_passes
from autotune.runtime.axes import real_part, size_of

CHANNELS = 2
RANGES = (
    {"h": "9..24:24", "w": "8..17:17"},
    {"h": "32..96:+32:96", "w": "16..64:+16:32,64"},
    {"h": "16..32:+4:32", "w": "20"},
)


class Net:
    """A random image model, grown an operator at a time: ``value`` has ``channels``."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.constants = [], {}
        self.value, self.channels = "x", CHANNELS

    def pick(self, *values):
        return values[self.rng.integers(len(values))]

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def weights(self, *shape):
        return self.constant(self.rng.standard_normal(shape).astype(np.float32) / 2)

    def scales(self):
        return self.constant(self.rng.random(self.channels).astype(np.float32) + 0.5)

    def add(self, op, *inputs, **attrs):
        output = f"v{len(self.nodes)}"
        outputs = [output, f"{output}.places"] if op == "TopK" else [output]
        self.nodes.append(helper.make_node(op, inputs, outputs, name=f"{output}.{op}", **attrs))
        return output

    def grow(self, op, *inputs, **attrs):
        self.value = self.add(op, self.value, *inputs, **attrs)

    def convolution(self):
        kernel, dilations = ([self.pick(1, 2, 3) for _ in "hw"] for _ in "kd")
        outputs, group = (self.channels, self.channels) if self.pick(0, 0, 1) else (3, 1)
        pads = {
            "pads": [
                self.pick(*range((k - 1) * d + 1)) for k, d in zip(kernel * 2, dilations * 2, strict=True)
            ]
        }
        mode = self.pick(None, None, None, "SAME_UPPER", "SAME_LOWER", "VALID")
        weights = self.weights(outputs, self.channels // group, *kernel)
        attrs = {"strides": [self.pick(1, 2) for _ in "hw"], "dilations": dilations, "group": group}
        self.grow("Conv", weights, self.weights(outputs), **attrs, **({"auto_pad": mode} if mode else pads))
        self.channels = outputs

    def transposed(self):
        kernel = [self.pick(2, 3), self.pick(2, 3)]
        pads, extra = [self.pick(0, 1) for _ in range(4)], [self.pick(0, 1), 0]
        weights = self.weights(self.channels, 3, *kernel)
        self.grow("ConvTranspose", weights, strides=[2, self.pick(1, 2)], pads=pads, output_padding=extra)
        self.channels = 3

    def pool(self):
        kernel, op = [self.pick(2, 3), self.pick(2, 3)], self.pick("MaxPool", "AveragePool")
        more = {"count_include_pad": self.pick(0, 1)} if op == "AveragePool" else {}
        pads, strides = [self.pick(*range(k)) for k in kernel * 2], [self.pick(1, 2) for _ in "hw"]
        mode = self.pick(None, None, "SAME_UPPER", "SAME_LOWER")
        more |= {"auto_pad": mode} if mode else {"pads": pads, "ceil_mode": self.pick(0, 1)}
        self.grow(op, kernel_shape=kernel, strides=strides, **more)

    def pointwise(self):
        self.grow(self.pick("Relu", "Sigmoid", "HardSwish", "Exp"))

    def batch_norm(self):
        self.grow("BatchNormalization", *(self.scales() for _ in range(4)))

    def branches(self):
        other = self.add("Conv", self.value, self.weights(self.channels, self.channels, 3, 3), pads=[1] * 4)
        if self.pick(0, 1):
            self.grow("Concat", other, axis=1)
            self.channels *= 2
        else:
            self.grow("Add", other)

    def excitation(self):
        whole = self.add(self.pick("GlobalAveragePool", "GlobalMaxPool"), self.value)
        self.grow("Mul", self.add("Sigmoid", whole))

    def by_scale(self):
        mode, scales = self.pick("nearest", "linear", "cubic"), [self.pick(2, 2, 1.5, 0.5, 3) for _ in "hw"]
        rounding = (
            {"nearest_mode": self.pick("floor", "round_prefer_floor", "ceil")} if mode == "nearest" else {}
        )
        where = self.pick("half_pixel", "asymmetric", "pytorch_half_pixel")
        factors = self.constant(np.array([1, 1, *scales], np.float32))
        self.grow("Resize", "", factors, mode=mode, coordinate_transformation_mode=where, **rounding)

    def to_size(self):
        """To the size of the input, or half of it, computed from its shape."""
        sizes = self.add("Shape", "x", start=2)
        if self.pick(0, 0, 1):
            sizes = self.add("Div", sizes, self.constant(np.array(2)))
        sizes = self.add("Concat", self.constant(np.array([1, self.channels])), sizes, axis=0)
        mode, where = (
            self.pick("nearest", "linear", "cubic"),
            self.pick("half_pixel", "asymmetric", "align_corners"),
        )
        rounding = (
            {"nearest_mode": self.pick("floor", "round_prefer_floor", "ceil")} if mode == "nearest" else {}
        )
        self.grow("Resize", "", "", sizes, mode=mode, coordinate_transformation_mode=where, **rounding)

    def parts(self):
        """Two halves the other way round; the first is longer by one where they differ."""
        axis, halves = self.pick(2, 3), [f"v{len(self.nodes)}.{n}" for n in "ab"]
        self.nodes.append(helper.make_node("Split", [self.value], halves, axis=axis, num_outputs=2))
        self.value = self.add("Concat", *halves[::-1], axis=axis)

    def repeated(self):
        """Twice along an axis, or as often as there are columns."""
        if self.pick(0, 1):
            counts = self.pick([1, 1, 2, 1], [1, 1, 1, 3], [1, 2, 2, 1])
            self.grow("Tile", self.constant(np.array(counts)))
            self.channels *= counts[1]
        else:
            columns = self.add("Shape", self.value, start=3)
            mean = self.add("ReduceMean", self.value, self.constant(np.array([3])))
            self.value = self.add(
                "Tile", mean, self.add("Concat", self.constant(np.ones(3, np.int64)), columns, axis=0)
            )

    def normalization(self):
        op, more = self.pick(("InstanceNormalization", {}), ("LRN", {"size": 3}))
        self.grow(op, *((self.scales(), self.scales()) if op != "LRN" else ()), **more)

    def padding(self):
        pads = [0, 0, self.pick(0, 1, 2), self.pick(0, 1), 0, 0, self.pick(0, 1), self.pick(0, 1, 2)]
        self.grow("Pad", self.constant(np.array(pads)), mode=self.pick("constant", "reflect", "edge"))

    def along(self):
        axis, way = self.pick(2, 3), self.pick("softmax", "sums", "first", "less")
        if way == "softmax":
            self.grow("Softmax", axis=axis)
        elif way == "sums":
            self.grow("CumSum", self.constant(np.array(axis)), reverse=self.pick(0, 1))
        elif way == "first":
            best = self.add(
                "TopK", self.value, self.constant(np.array([1])), axis=axis, largest=self.pick(0, 1)
            )
            self.grow("Sub", best)
        else:
            self.grow(
                "Sub",
                self.add(self.pick("ReduceMean", "ReduceMax"), self.value, self.constant(np.array([axis]))),
            )

    def shuffle(self):
        self.grow("Conv", self.weights(8, self.channels, 1, 1))
        self.grow("DepthToSpace", blocksize=2, mode=self.pick("DCR", "CRD"))
        self.channels = 2

    def focus(self):
        ends, axes, steps = (self.constant(np.array(each)) for each in ([1 << 31] * 2, [2, 3], [2, 2]))
        starts = [self.constant(np.array([start, 0])) for start in (0, 1)]
        parts = [self.add("Slice", self.value, start, ends, axes, steps) for start in starts]
        self.value = self.add("Concat", *parts, axis=1)
        self.channels *= 2

    def behind(self):
        self.grow("Concat", self.value, axis=self.pick(2, 3))

    def end(self):
        """Join height and width, also of two images, or take the whole image, or leave it."""
        end = self.pick("flat", "levels", "rows", "whole", "image")
        rows = self.constant(np.array([1, self.channels, -1]))
        if end == "flat":
            self.grow("Flatten", axis=2)
        elif end == "levels":
            half = self.add("MaxPool", self.value, kernel_shape=[1, 1], strides=[2, 2])
            parts = [self.add("Reshape", each, rows) for each in (self.value, half, self.value)]
            self.value = self.add("Concat", *parts, axis=2)
        elif end == "rows":
            self.grow("Transpose", perm=[0, 2, 3, 1])
            self.grow("Reshape", self.constant(np.array([0, -1, self.channels])))
        elif end == "whole":
            self.grow("GlobalAveragePool")

    def model(self):
        image = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, CHANNELS, "h", "w"])
        result = helper.make_tensor_value_info(self.value, TensorProto.FLOAT, None)
        arrays = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = helper.make_graph(self.nodes, "image", [image], [result], arrays)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


KINDS = (
    *("convolution", "transposed", "pool", "pointwise", "batch_norm", "branches", "excitation", "by_scale"),
    *("to_size", "parts", "normalization", "padding", "along", "shuffle", "focus", "behind"),
)


def check_graphs(source, texts, rng):
    """Compare the graph of each bucket, by definition, with those of several sizes."""
    ranges = {symbol: SizeRange.parse(text) for symbol, text in texts.items()}
    for bucket in buckets(source, ranges):
        allowed = [range(r.below(bucket.sizes[s]), bucket.sizes[s] + 1, r.step) for s, r in ranges.items()]
        firsts, lasts = ([sizes[at] for sizes in allowed] for at in (0, -1))
        others = [[int(rng.choice(sizes)) for sizes in allowed] for _ in range(3)]
        for each in (firsts, lasts, *others):
            check_graph(source, bucket, dict(zip(ranges, each, strict=True)), rng)


def check_graph(source, bucket, real, rng):
    image = rng.standard_normal((1, CHANNELS, *real.values())).astype(np.float32)
    try:
        wanted = evaluate.run(load(source, shapes=real), {"x": image})
    except ModelImportError:
        return  # no model of this size
    whole = np.zeros((1, CHANNELS, *bucket.sizes.values()), np.float32)
    whole[:, :, : real["h"], : real["w"]] = image
    sizes = {name: np.array(size_of(factor, real)) for factor, name in bucket.size_inputs.items()}
    with np.errstate(all="ignore"):  # beyond the request
        found = evaluate.run(bucket.graph, {"x": whole, **sizes})
    for name, array in wanted.items():
        shape, slices, own = real_part(bucket.outputs[name], bucket.sizes, real)
        assert own == array.shape
        part = found[name].reshape(shape)[slices].reshape(own)
        np.testing.assert_allclose(part, array, 2e-4, 2e-4 * max(1, np.abs(array).max()), err_msg=str(real))


def checked(seed, kinds, depth):
    """Return whether a random model could be checked: it may be none at some sizes, or be refused."""
    net = Net(seed)
    for _ in range(depth):
        getattr(net, net.pick(*kinds))()
    net.end()
    try:
        check_graphs(net.model(), RANGES[seed % len(RANGES)], net.rng)
    except PaddingError:
        return False
    except ModelImportError:
        return False
    return True


@pytest.mark.parametrize("kind", [*KINDS, "repeated"])
def test_an_operator_of_images_is_that_of_each_size(kind):
    assert sum(checked(seed, [kind, "pointwise"], 2) for seed in range(6)) >= 3


def test_random_models_of_images_are_those_of_each_size():
    assert sum(checked(seed, KINDS, 4) for seed in range(18)) >= 9


@pytest.mark.slow
def test_many_random_models_of_images_are_those_of_each_size():
    assert sum(checked(seed, KINDS, 5) for seed in range(1000, 1600)) >= 300


def detector():
    """Two scales of a detector, joined: a backbone of strides, a resized branch, anchors in rows."""
    net = Net(7)
    for stride in (2, 1, 2):
        net.grow("Conv", net.weights(4, net.channels, 3, 3), strides=[stride] * 2, pads=[1] * 4)
        net.grow("Relu")
        net.channels = 4
    fine = net.value
    net.grow("Conv", net.weights(4, 4, 3, 3), net.weights(4), strides=[2, 2], pads=[1] * 4)
    net.grow("MaxPool", kernel_shape=[5, 5], pads=[2] * 4)
    coarse = net.value
    net.grow("Resize", "", net.constant(np.array([1, 1, 2, 2], np.float32)), mode="nearest")
    net.grow("Concat", fine, axis=1)
    parts = [
        net.add("Reshape", each, net.constant(np.array([1, n, -1])))
        for each, n in ((net.value, 8), (coarse, 4))
    ]
    heads = [net.add("MatMul", net.weights(1, 3, n), each) for each, n in zip(parts, (8, 4), strict=True)]
    net.value = net.add("Sigmoid", net.add("Concat", *heads, axis=2))
    return net.model()


def test_a_compiled_detector_of_open_height_and_width(tmp_path):
    source, rng = detector(), np.random.default_rng(0)
    sizes = {"h": "16..48:+16:48", "w": "16..64:+8:64"}
    with autotune.compile_for_sizes(source, sizes, threads=2) as module:
        module.save(tmp_path / "detector.atm")
    with autotune.load(tmp_path / "detector.atm") as module:
        for h, w in ((16, 16), (32, 56), (48, 64), (48, 24)):
            image = rng.standard_normal((1, CHANNELS, h, w)).astype(np.float32)
            (wanted,) = evaluate.run(load(source, shapes={"h": h, "w": w}), {"x": image}).values()
            (found,) = module(image)
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, 1e-4, 1e-5)
        with pytest.raises(InputError, match="takes w from 16 to 64 in steps of 8, got 17"):
            module(np.zeros((1, CHANNELS, 16, 17), np.float32))


def test_numbers_of_levels_lie_as_their_places_do():
    """Detectors give each place of a level its stride: as many equal numbers as the level has places, levels joined."""
    net, levels, strides = Net(3), [], []
    for stride in (2.0, 4.0):
        net.grow("Conv", net.weights(net.channels, net.channels, 3, 3), strides=[2, 2], pads=[1] * 4)
        shape = net.add("Shape", net.value)
        height, width = (net.add("Gather", shape, net.constant(np.array(place))) for place in (2, 3))
        count = net.add("Unsqueeze", net.add("Mul", height, width), net.constant(np.array([0])))
        full = net.add("Concat", count, net.constant(np.array([1])), axis=0)
        value = numpy_helper.from_array(np.array([stride], np.float32))
        strides.append(net.add("ConstantOfShape", full, value=value))
        levels.append(net.add("Reshape", net.value, net.constant(np.array([1, net.channels, -1]))))
    numbers = net.add("Transpose", net.add("Concat", *strides, axis=0), perm=[1, 0])
    net.value = net.add("Mul", net.add("Concat", *levels, axis=2), numbers)
    for sizes in ({"h": "8..32:+4:32", "w": "8..24:+8:24"}, {"h": "8..32:+8:16,32", "w": "16..48:+16:48"}):
        check_graphs(net.model(), sizes, net.rng)


BETWEEN = {"h": "9..24:24", "w": "8..17:17"}
"""Sizes of which those that are looked at do not tell all rules apart."""


def test_places_are_found_by_the_rule_that_the_model_names():
    net = Net(3)
    net.grow("ConvTranspose", net.weights(net.channels, 2, 3, 3), strides=[2, 1], pads=[1, 0, 1, 0])
    sizes = net.add("Concat", net.constant(np.array([1, 2])), net.add("Shape", "x", start=2), axis=0)
    where = {"coordinate_transformation_mode": "align_corners", "nearest_mode": "round_prefer_floor"}
    net.grow("Resize", "", "", sizes, mode="nearest", **where)
    check_graphs(net.model(), BETWEEN, net.rng)


def test_pads_are_added_to_what_the_axis_is():
    net = Net(3)
    net.grow("AveragePool", kernel_shape=[3, 3], pads=[0, 2, 0, 1], strides=[1, 2], ceil_mode=1)
    net.value = net.add("Concat", net.value, net.value, axis=3)
    net.grow("Pad", net.constant(np.array([0, 0, 0, 1, 0, 0, 1, 2])), mode="reflect")
    check_graphs(net.model(), BETWEEN, np.random.default_rng(1))


PRODUCTS = {
    "MatMul": ((1, "h", 384), (384, 384)),
    "Gemm": (("h", 384), (384, 384)),
    "Conv": ((1, 384, 2, "h"), (384, 384, 1, 1)),
}


@pytest.mark.parametrize("op", PRODUCTS)
def test_what_is_not_finite_beyond_a_request_stays_there_where_rows_are_mixed(op):
    """Beyond a request the reciprocal of a zero is infinite, and Strassen's sums are of rows of both halves."""
    shape, weights = PRODUCTS[op]
    rng = np.random.default_rng(0)
    w = numpy_helper.from_array(rng.standard_normal(weights).astype(np.float32), "w")
    nodes = [helper.make_node("Reciprocal", ["x"], ["r"]), helper.make_node(op, ["r", "w"], ["y"])]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
        for name, dims in (("x", shape), ("y", None))
    ]
    graph = helper.make_graph(nodes, "product", ends[:1], ends[1:], [w])
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    (bucket,) = buckets(source, {"h": SizeRange.parse("33..64:64")})
    mixed = Strassen().apply(run_passes(bucket.graph, standard_passes()))
    assert any(node.op == "StrassenInput" for node in mixed.nodes)
    real = [40 if size == "h" else size for size in shape]
    x = rng.random(real).astype(np.float32) + 0.5
    whole = np.zeros([64 if size == "h" else size for size in shape], np.float32)
    whole[tuple(map(slice, real))] = x
    with np.errstate(divide="ignore"):
        (found,) = evaluate.run(
            mixed, {"x": whole, **{name: np.array(40) for name in bucket.size_inputs.values()}}
        ).values()
    (wanted,) = evaluate.run(load(source, shapes={"h": 40}), {"x": x}).values()
    np.testing.assert_allclose(found[tuple(map(slice, wanted.shape))], wanted, 1e-3, 1e-3)


def test_sizes_at_which_a_model_is_none_are_refused_with_advice():
    with pytest.raises(
        PaddingError, match=r"(?s)the model is none with h = .*\n.*h=320\.\.1280:\+32 are those"
    ):
        list(buckets(detector(), {"h": SizeRange.parse("16..48:48"), "w": SizeRange.parse("64")}))


def test_expressions_are_equal_where_they_are_at_every_size():
    any_size = GrownExtents({"h": 96}, {"h": 32}, {})
    stepped = GrownExtents({"h": 96}, {"h": 32}, {"h": 32})
    assert any_size.one("(2*((h+1)/2))") == "(2*((h+1)/2))"
    assert stepped.one("(2*((h+1)/2))") == "h"
    assert stepped.same(("(h)/2", 2), ("h",))
    assert not any_size.same(("(h)/2", 2), ("h",))
    assert stepped.divided("h", 32) == "(h)/32"
    assert any_size.divided("h", 2) is None
    square = [({"h": h}, h * h) for h in (96, 95, 32)]
    assert any_size.fitted(square, "y") is None
    half = [({"h": h}, h // 2) for h in (96, 95, 63, 33, 32)]
    assert any_size.fitted(half, "y") == ("(h)/2",)
    with pytest.raises(UndecidedExtentError, match="y may be 16 or 17 at"):
        GrownExtents({"h": 96}, {"h": 32}, {}).fitted([each for each in half if each != ({"h": 33}, 16)], "y")
