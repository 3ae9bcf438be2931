"""Files as Arrow record batches, value for value as Spark reads them."""
