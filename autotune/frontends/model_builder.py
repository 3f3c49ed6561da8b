"""A small builder of ONNX models in code, used by the zoo and by tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import onnx

OPSET = 17
IR_VERSION = 8
_LARGE = 1024
_ALIGNMENT = 64


class ModelBuilder:
    """Collects nodes and initialisers; :meth:`finish` makes the checked ``ModelProto``.

    Random weights come from one generator, so a model is a function of its seed. With ``weights`` large initialisers
    are written to that file beside the model as they are made, and never held together.
    """

    def __init__(self, name: str, seed: int = 0, weights: Path | None = None) -> None:
        self.name = name
        self._file = weights
        self.rng = np.random.default_rng(seed)
        self._nodes: list[Any] = []
        self._initializers: list[Any] = []
        self._inputs: list[Any] = []

    def input(self, name: str, shape: Sequence[int | str], dtype: str = "float32") -> str:
        """Declare a model input; a string in ``shape`` is a symbolic dimension."""
        from onnx import helper

        element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self._inputs.append(helper.make_tensor_value_info(name, element, list(shape)))
        return name

    def constant(self, name: str, array: Any) -> str:
        """Add an initialiser holding ``array`` (its dtype is kept)."""
        from onnx import numpy_helper

        dense = np.ascontiguousarray(array).reshape(np.shape(array))
        beside = self._file is not None and dense.nbytes >= _LARGE
        self._initializers.append(
            self._beside(name, dense) if beside else numpy_helper.from_array(dense, name)
        )
        return name

    def _beside(self, name: str, array: NDArray[Any]) -> Any:
        """Return an initialiser whose data are appended to the file of weights."""
        from onnx import TensorProto, helper

        assert self._file is not None
        element = helper.np_dtype_to_tensor_dtype(array.dtype)
        tensor = TensorProto(
            name=name, data_type=element, dims=array.shape, data_location=TensorProto.EXTERNAL
        )
        with self._file.open("ab") as file:
            file.write(bytes(-file.tell() % _ALIGNMENT))
            entries = {"location": self._file.name, "offset": file.tell(), "length": array.nbytes}
            file.write(array.data)
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=str(value))
        return tensor

    def normal(self, name: str, shape: Sequence[int], scale: float) -> str:
        """Add a float32 initialiser of normal values with standard deviation ``scale``."""
        values = self.rng.standard_normal(tuple(shape), dtype=np.float32)
        return self.constant(name, values * np.float32(scale))

    def node(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """Add a node with one output; returns the output's name."""
        from onnx import helper

        self._nodes.append(helper.make_node(op, list(inputs), [output], name=output, **attributes))
        return output

    def nodes(self, op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> None:
        """Add a node with several outputs."""
        from onnx import helper

        self._nodes.append(helper.make_node(op, list(inputs), list(outputs), name=outputs[0], **attributes))

    def finish(
        self,
        outputs: Sequence[str],
        opset: int = OPSET,
        *,
        shapes: Mapping[str, Sequence[int | str]] | None = None,
    ) -> onnx.ModelProto:
        """Return the model with the given outputs, their types inferred; or float32 of the ``shapes`` that are given.

        Operators of other domains, of which nothing is inferred, are those of version 1.
        """
        import onnx
        from onnx import TensorProto, helper

        ends = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [*shapes[name]])
            if shapes
            else onnx.ValueInfoProto(name=name)
            for name in outputs
        ]
        graph = helper.make_graph(self._nodes, self.name, self._inputs, ends, self._initializers)
        domains = sorted({node.domain for node in self._nodes} - {""})
        versions = [helper.make_opsetid("", opset), *(helper.make_opsetid(each, 1) for each in domains)]
        model = helper.make_model(graph, opset_imports=versions, ir_version=IR_VERSION)
        if shapes:
            return model
        inferred = {v.name: v for v in onnx.shape_inference.infer_shapes(model).graph.output}
        for value in model.graph.output:
            value.CopyFrom(inferred[value.name])
        return model


__all__ = ["IR_VERSION", "OPSET", "ModelBuilder"]
