"""A model by both quantisers, `autotune quantize` and that of ONNX Runtime, from the same samples."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autotune.bench.systems import System
from autotune.errors import MeasureError
from autotune.graph.ir import Array
from autotune.quantization.quantize import quantize
from results.bench.quantised.sources import Source

if TYPE_CHECKING:
    import onnx

OURS, THEIRS = "autotune quantize", "ONNX Runtime's quantiser"
_SCRIPT = Path(__file__).with_name("peer.py")
_PATIENCE_S = 600.0


@dataclass(frozen=True)
class OnnxRuntime:
    """ONNX Runtime in an environment of its own; files for it are written to ``folder``."""

    system: System
    folder: Path

    def quantised(self, source: Source) -> onnx.ModelProto:
        """A model by its quantiser; raises MeasureError where that fails."""
        import onnx

        model, output = self._written(source.model), self.folder / "quantised.onnx"
        self._ask(do="quantise", model=model, samples=self._array(source.calibration), output=str(output))
        return onnx.load(str(output))

    def outputs(self, model: onnx.ModelProto, samples: Array, threads: int) -> Array:
        """The model's output for each sample; raises MeasureError where that fails."""
        output = str(self.folder / "outputs.npy")
        files = {"model": self._written(model), "samples": self._array(samples), "output": output}
        self._ask(do="outputs", threads=threads, **files)
        found: Array = np.load(output, allow_pickle=False)
        return found

    def _written(self, model: onnx.ModelProto) -> str:
        import onnx

        path = str(self.folder / "model.onnx")
        onnx.save(model, path)
        return path

    def _array(self, samples: Array) -> str:
        path = str(self.folder / "samples.npy")
        np.save(path, samples, allow_pickle=False)
        return path

    def _ask(self, **request: Any) -> None:
        command = [self.system.command[0], "-I", str(_SCRIPT)]
        try:
            done = subprocess.run(
                command, input=json.dumps(request), capture_output=True, text=True, timeout=_PATIENCE_S
            )
        except subprocess.TimeoutExpired as error:
            raise MeasureError(f"ONNX Runtime: {request['do']} took more than {_PATIENCE_S:.0f} s") from error
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise MeasureError(f"ONNX Runtime: {request['do']} failed: {last}")


def quantised(source: Source, peer: OnnxRuntime | None, threads: int) -> dict[str, onnx.ModelProto]:
    """The model by each quantiser; ours alone without a peer."""
    samples = source.calibration.reshape(-1, *source.calibration.shape[2:])
    made = {OURS: quantize(source.model, {source.input: samples}, threads=threads).model}
    return made if peer is None else {**made, THEIRS: peer.quantised(source)}


__all__ = ["OURS", "THEIRS", "OnnxRuntime", "quantised"]
