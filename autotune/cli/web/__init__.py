"""Pages of ``autotune serve``: jobs, workloads and cost models of a tuning database, in a browser."""
