"""Other ways to compute an anchor, each an option of a site that is measured: Winograd, Strassen, split sums, ..."""
