"""The experiments of the papers, run again: plots with the published values marked, and a verdict for every claim."""
