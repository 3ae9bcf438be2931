"""A shared-nothing cluster, simulated event by event, in which the policies and protocol machines run as they are."""
