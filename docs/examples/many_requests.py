"""Answer requests of coroutines in the background, several at a time."""

import asyncio

import numpy as np

import autotune

model = autotune.compile("zoo:tiny_cnn", threads=1)
shape = model.inputs[0].shape
requests = [np.random.default_rng(number).standard_normal(shape).astype(np.float32) for number in range(8)]


async def serve():
    """Return the answers, in the order of the requests."""
    return await asyncio.gather(*(answered(x) for x in requests))


async def answered(x):
    """Wait for one answer without keeping others from running."""
    return await model.submit(x)


answers = asyncio.run(serve())
for x, (y, *_) in zip(requests, answers, strict=True):
    np.testing.assert_array_equal(y, model(x)[0])
print(f"{len(answers)} requests answered")
