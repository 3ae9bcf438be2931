"""Many queries: hundreds over the same streams, in one flow, as Spark's own queries, and as single flows."""
