"""Which units there are, the hashes and ids of each, and the sites that hold them."""
