"""How quickly a large tuning database answers: one is made up from the workloads of real models, and asked."""
