"""The batch answer to dropped duplicates: the first rows of a stream (k, ts, v, w), as SQL for DuckDB."""

from __future__ import annotations


def first_rows(name: str, mark: int, within: int | None = None, keys: str = "k", others: str = "v, w") -> str:
    """The rows that stay and that the watermark has passed. Of rows of one key and time the least one counts."""
    order = ", ".join(f"{column} NULLS FIRST" for column in others.split(", ")) if others else "1"
    alone = f"""SELECT *, dense_rank() OVER (ORDER BY {keys}) AS key_number FROM {name}
        QUALIFY row_number() OVER (PARTITION BY {keys}, ts ORDER BY {order}) = 1"""
    columns = ", ".join(dict.fromkeys(f"alone.{column}" for column in f"{keys}, ts, {others}".split(", ") if column))
    following = (
        ""
        if within is None
        else f"""UNION ALL
        SELECT chosen.key_number, min(alone.ts) FROM chosen JOIN alone USING (key_number)
        WHERE epoch_us(alone.ts) > epoch_us(chosen.ts) + {within} GROUP BY chosen.key_number"""
    )
    return f"""WITH RECURSIVE alone AS ({alone}), chosen AS (
        SELECT key_number, min(ts) AS ts FROM alone GROUP BY key_number {following})
        SELECT {columns} FROM alone JOIN chosen USING (key_number, ts) WHERE epoch_us(ts) < {mark}"""
