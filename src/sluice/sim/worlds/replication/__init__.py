"""A chain of binary joins over machines with little memory, whose units have several holders.

After the evaluation of "Balancing Memory Load in D-CAPE Using Replication-Style Distributed Partitioning of Operator
States".
"""
