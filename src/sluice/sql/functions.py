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
    "collect_list", "collect_set", "corr", "count_if", "covar_pop", "covar_samp", "every", "kurtosis", "listagg",
    "max_by", "median", "min_by", "mode", "nth_value", "percentile", "percentile_approx", "percentile_cont",
    "percentile_disc", "skewness", "some", "string_agg",
}  # fmt: skip
_PLACES = {"cume_dist", "dense_rank", "ntile", "percent_rank", "rank"}


def function_name(node: Any) -> str:
    """The lower-case name of the function a node calls, or nothing."""
    return str(node.name).lower() if isinstance(node, exp.Anonymous) else ""


def advice_against(node: Any) -> str | None:
    """What to write instead of a function that looks at rows which no operator has; None for all others."""
    name = function_name(node)
    if name in ("lag", "lead"):
        value, *others = [part.sql() for part in node.expressions] or ["price"]
        offset = int(others[0]) if others and others[0].isdigit() else 1
        before = (
            f"CASE WHEN count(*) OVER w = {offset + 1} THEN first({value}) OVER w END, with WINDOW w AS (PARTITION BY "
            f"... ORDER BY ts ROWS BETWEEN {offset} PRECEDING AND CURRENT ROW)"
        )
        if name == "lag":
            return f"lag is not there as a function; the value {offset} before is {before}"
        return f"lead asks for rows that are still to come; ask at the later row for the earlier one: {before}"
    if name in _PLACES:
        return (
            f"{name} needs all rows of a group, and a stream has no end; for the newest row of each minute take "
            "last(price) with GROUP BY symbol, window(ts, '1 minute'); count(*) OVER (PARTITION BY symbol ORDER BY ts "
            "ROWS BETWEEN 99 PRECEDING AND CURRENT ROW) numbers the first 100 rows of a group"
        )
    return None


def is_aggregate(node: Any) -> bool:
    name = function_name(node)
    return name in AGGREGATES or name in _OTHERS
