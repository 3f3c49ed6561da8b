"""Which device an operation runs on: affinities, propagated to a fixed point."""
