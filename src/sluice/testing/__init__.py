"""Queries driven in this process, without Spark, calm or on bad days."""
