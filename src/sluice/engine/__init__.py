"""An epoch without Spark: the split, the sites, and the driver's side."""
