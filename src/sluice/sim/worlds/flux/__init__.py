"""One stage of a pipeline: producers and consumers with state on every site, and an exchange between them.

After sections 3 to 6 of "Flux: An Adaptive Partitioning Operator for Continuous Query Systems".
"""
