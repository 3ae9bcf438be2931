"""Nexmark: the public suite of queries over people, auctions and bids, on Sluice, Spark and Flink."""
