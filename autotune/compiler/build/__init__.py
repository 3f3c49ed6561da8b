"""Machine code of workloads, built in this process and in workers beside it."""
