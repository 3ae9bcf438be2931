"""Sluice beside its peers on the same rows: ``python -m benchmarks.run`` from the project's root."""
