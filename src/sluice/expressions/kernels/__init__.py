"""What expressions are computed by: Spark's meaning on Arrow arrays and numpy."""
