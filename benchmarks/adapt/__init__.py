"""The adaptive benchmark: what policies do for a query that is disturbed while it runs, on real executors."""
