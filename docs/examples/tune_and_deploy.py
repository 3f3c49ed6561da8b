"""Tune a model, compile it from the database, save it, and run what was saved."""

import numpy as np

import autotune

MODEL, DATABASE = "zoo:tiny_cnn", "tuning.db"

report = autotune.tune(MODEL, budget=60, database=DATABASE)
print(report)

model = autotune.compile(MODEL, database=DATABASE)
model.save("model.atm")

with autotune.load("model.atm") as same:
    x = np.random.default_rng(0).standard_normal(same.inputs[0].shape).astype(np.float32)
    for mine, saved in zip(model(x), same(x), strict=True):
        np.testing.assert_array_equal(mine, saved)
    print(f"median {np.median(same.time([x], repeat=50)) / 1e3:.1f} µs")
