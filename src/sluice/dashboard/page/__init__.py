"""The live page: a query in a browser, from its journal alone."""
