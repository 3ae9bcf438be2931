"""Sluice beside its peers on the same rows: ``python -m benchmarks.join`` from the project's root."""
