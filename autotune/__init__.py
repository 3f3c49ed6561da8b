"""An autotuning compiler: tune a model overnight, compile it from the database, retrain the cost model."""
