"""Programs of several devices: their steps, their requests, and recordings of them."""
