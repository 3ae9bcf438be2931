"""What several policies plan with: which units move, split, are shared or frozen, and between which sites."""
