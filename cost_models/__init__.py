"""Cost models: what a candidate is thought to take, by analysis and by learning from measured runs."""
