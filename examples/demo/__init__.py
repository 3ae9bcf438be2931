"""What Sluice does, in about two minutes: `make demo`."""
