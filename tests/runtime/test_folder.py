"""Images of a folder share what they have in common."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from autotune.compiler import compile_in_detail
from autotune.compiler.request import CompileRequest
from autotune.runtime.artifacts.folder import FolderReader, FolderWriter


def test_images_come_back_and_share_contents(tmp_path: Path) -> None:
    image = compile_in_detail(CompileRequest("zoo:tiny_cnn", threads=1)).image
    changed = (image.constants[0] + 1, *image.constants[1:])
    writer, reader = FolderWriter(tmp_path), FolderReader()
    paths = [writer.add(image), writer.add(replace(image, constants=changed)), writer.add(image)]
    first, second, third = (reader.image(path) for path in paths)
    assert first.same_code(image)
    assert (first.inputs, first.outputs, first.dispatches) == (image.inputs, image.outputs, image.dispatches)
    for read, constants in ((first, image.constants), (second, changed)):
        assert all(np.array_equal(a, b) for a, b in zip(read.constants, constants, strict=True))
    assert all(np.shares_memory(a, b) for a, b in zip(first.constants, third.constants, strict=True))
    assert not np.shares_memory(first.constants[0], second.constants[0])
    assert np.shares_memory(first.constants[1], second.constants[1])
    contents = [path for path in tmp_path.iterdir() if path.suffix != ".json"]
    assert len(contents) <= len(image.objects) + len(image.constants) + 1
