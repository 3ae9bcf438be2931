"""Many queries over streams that are native at sites, after the paper on operator placement.

`scenario` has the values, `queries` draws the queries, `core` is compiled, `world` is what the simulation knows.
"""
