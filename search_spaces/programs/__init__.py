"""Spaces of users' own programs, discovered from their structure."""
