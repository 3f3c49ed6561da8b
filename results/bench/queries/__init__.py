"""The speed of queries to a large tuning database: one is made up from the workloads of real models, and queried."""
