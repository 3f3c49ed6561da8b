"""Measurements of candidates, alone and inside the whole model, and what decides their outcome."""
