"""The memory of a compiled model: its peak, its plan drawn and proved, and the option that saves most."""
