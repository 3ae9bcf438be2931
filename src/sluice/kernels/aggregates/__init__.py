"""What aggregates are computed from, one kind a file: counts, totals, moments, extremes, and first and last values."""
