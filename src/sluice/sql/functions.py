"""The aggregate functions of SQL and what the Python face calls them."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

AGGREGATES = {
    "count": "count", "sum": "sum", "avg": "avg", "mean": "avg", "min": "min", "max": "max",
    "stddev": "stddev", "std": "stddev", "stddev_samp": "stddev", "variance": "variance", "var_samp": "variance",
    "stddev_pop": "stddev_pop", "var_pop": "var_pop", "first": "first", "first_value": "first", "last": "last",
    "last_value": "last",
}  # fmt: skip
# Aggregates and window functions of Spark that no operator computes: named so that the refusal can say so.
_OTHERS = {
    "any", "any_value", "approx_count_distinct", "approx_percentile", "array_agg", "bool_and", "bool_or",
    "collect_list", "collect_set", "corr", "count_if", "covar_pop", "covar_samp", "cume_dist", "dense_rank", "every",
    "kurtosis", "lag", "lead", "listagg", "max_by", "median", "min_by", "mode", "nth_value", "ntile", "percent_rank",
    "percentile", "percentile_approx", "percentile_cont", "percentile_disc", "rank", "row_number", "skewness", "some",
    "string_agg",
}  # fmt: skip


def called(node: Any) -> str:
    """The lower-case name of the function a node calls, or nothing."""
    return str(node.name).lower() if isinstance(node, exp.Anonymous) else ""


def is_aggregate(node: Any) -> bool:
    name = called(node)
    return name in AGGREGATES or name in _OTHERS
