"""Models on several devices: segments compiled each for its device, as one program."""
