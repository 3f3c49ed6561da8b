"""Search spaces: what schedules of a workload there are, as sketches with knobs and constraints."""
