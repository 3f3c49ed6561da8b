"""One file a family of workloads: which space it has."""
