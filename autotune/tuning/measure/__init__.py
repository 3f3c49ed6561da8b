"""Measuring: candidates in, outcomes out; what runs a candidate is another process."""
