"""Latency: from a row's arrival to its result being readable, and from `start()` to the first result."""
