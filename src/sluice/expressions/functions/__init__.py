"""The functions an expression may call, one kind a file: what arguments they take and which kernel computes them."""
