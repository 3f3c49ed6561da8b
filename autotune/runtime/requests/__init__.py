"""Requests in the background: futures, queues and streams."""
