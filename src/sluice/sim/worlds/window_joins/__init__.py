"""A master that hands the tuples of two streams out to sites, which scan windows.

After the experiments of "Parallelizing Windowed Stream Joins in a Shared-Nothing Cluster".
"""
