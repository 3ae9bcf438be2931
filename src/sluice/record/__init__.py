"""What an epoch leaves on record, and what its tasks report."""
