"""What Sluice does, in about three minutes: `make demo`."""
