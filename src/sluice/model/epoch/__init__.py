"""What an epoch leaves: attempts, times, segments, results, statistics and decisions."""
