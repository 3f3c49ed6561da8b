"""Reports of a job and of a query: displays while it runs, results afterwards."""
