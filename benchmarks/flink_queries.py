"""The workloads in Flink SQL. Only the standard library is imported here: Flink's own interpreter reads this file."""

from __future__ import annotations

from benchmarks.workloads import BAND, BUCKETS, Workload

PLAIN = "CAST({} AS TIMESTAMP(3))"
SQL = {"stddev": "STDDEV_SAMP"}


def results(w: Workload) -> tuple[str, str]:
    """Columns of the table of results, and the query that fills it."""
    match w.operation:
        case "sliding":
            return f"`key` BIGINT, {window_types(w)}", windows(w, "TABLE A", "`key`", "ts")
        case "last":
            made = ", ".join(f"{call(*given)} OVER newest AS {name}" for name, given in w.aggregates.items())
            frame = f"PARTITION BY `key` ORDER BY ts ROWS BETWEEN {w.last - 1} PRECEDING AND CURRENT ROW"
            query = f"SELECT `key`, {PLAIN.format('ts')}, {made} FROM A WINDOW newest AS ({frame})"
            return f"`key` BIGINT, ts TIMESTAMP(3), {aggregate_types(w)}", query
        case "joined-groups":
            return f"bucket BIGINT, {window_types(w)}", windows(w, "TABLE pairs", "bucket", "A_ts")
    columns = ", ".join(f"{s}_{name} {sql_type(kind)}" for s in w.streams for name, kind in w.columns)
    return columns, f"SELECT {every_column(w)} {join(w)}"


def checked(w: Workload, until: str) -> str:
    """Number of results, and of a group-by the sum of `total`, over those that can be given at the time `until`."""
    if w.is_join:
        return f"SELECT COUNT(*) {join(w)}"
    due = f" WHERE window_end <= TIMESTAMP '{until}'" if w.operation != "last" else ""
    return f"SELECT COUNT(*), SUM(total) FROM ({results(w)[1]}){due}"


def views(w: Workload) -> list[str]:
    """What has to be declared first: a window function takes a table or a view, and one row time."""
    if w.operation == "band":
        return [f"CREATE TEMPORARY VIEW {name}_buckets AS {rows}" for name, rows in buckets().items()]
    if w.operation != "joined-groups":
        return []
    chosen = f"MOD(A.`key`, {BUCKETS}) AS bucket, A.ts AS A_ts, A.v AS A_v, B.v AS B_v"
    return [f"CREATE TEMPORARY VIEW pairs AS SELECT {chosen} {join(w)}"]


def buckets() -> dict[str, str]:
    """Each row of A in its bucket of keys, each of B in both that its partners can be in: an interval join needs an
    equality."""

    def rows(stream: str, shift: int) -> str:
        return f"SELECT *, (`key` + {shift}) / {2 * BAND} AS bucket FROM {stream}"

    return {"A": rows("A", 2 * BAND), "B": f"{rows('B', BAND)} UNION ALL {rows('B', 3 * BAND)}"}


def join(w: Workload) -> str:
    def near(left: str, right: str) -> str:
        width = f"INTERVAL '{w.window_seconds}' SECOND"
        earlier = right if w.operation == "joined-groups" else f"{right} - {width}"
        return f"{left} BETWEEN {earlier} AND {right} + {width}"

    if w.operation == "band":
        keys = f"A.`key` BETWEEN B.`key` - {BAND} AND B.`key` + {BAND}"
        return f"FROM A_buckets A JOIN B_buckets B ON A.bucket = B.bucket AND {keys} AND {near('A.ts', 'B.ts')}"
    pairs = f"FROM A JOIN B ON A.`key` = B.`key` AND {near('A.ts', 'B.ts')}"
    if len(w.streams) == 2:
        return pairs
    return f"{pairs} JOIN C ON A.`key` = C.`key` AND {near('A.ts', 'C.ts')} AND {near('B.ts', 'C.ts')}"


def every_column(w: Workload) -> str:
    """Output columns; a result may hold one row time, so each becomes a plain timestamp."""
    plain = {"timestamp": PLAIN}
    return ", ".join(plain.get(kind, "{}").format(f"{s}.`{name}`") for s in w.streams for name, kind in w.columns)


def windows(w: Workload, rows: str, group: str, time: str) -> str:
    slide, length = (f"INTERVAL '{seconds}' SECOND" for seconds in (w.slide_seconds, w.window_seconds))
    made = ", ".join(f"{call(*given)} AS {name}" for name, given in w.aggregates.items())
    return (
        f"SELECT {group}, window_start, window_end, {made} "
        f"FROM TABLE(HOP({rows}, DESCRIPTOR({time}), {slide}, {length})) GROUP BY {group}, window_start, window_end"
    )


def call(column: str, function: str) -> str:
    """An aggregate; sums of 32 bit numbers are asked for in 64 bits, which everybody else gives unasked."""
    argument = f"CAST({column} AS BIGINT)" if function == "sum" else column
    return f"{SQL.get(function, function.upper())}({argument})"


def window_types(w: Workload) -> str:
    return f"window_start TIMESTAMP(3), window_end TIMESTAMP(3), {aggregate_types(w)}"


def aggregate_types(w: Workload) -> str:
    whole = ("count", "sum")
    return ", ".join(f"{n} {'BIGINT' if f in whole else 'DOUBLE'}" for n, (_, f) in w.aggregates.items())


def sql_type(kind: str) -> str:
    return {"long": "BIGINT", "timestamp": "TIMESTAMP(3)"}.get(kind, kind.upper())
