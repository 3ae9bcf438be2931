"""Writes what was measured into the pages of `PAGES` anew, from docs/figures/benchmarks.json and nexmark.json.

make bench ARGS="--json docs/figures/benchmarks.json" && python scripts/benchmark_page.py
make bench ARGS="--only wide --json docs/figures/benchmarks.json" && python scripts/benchmark_page.py
make bench ARGS="--only nexmark --json docs/figures/nexmark.json" && python scripts/benchmark_page.py

A file has figures of one state of the code alone. A run beside which others took much of the machine is refused:
it has to be taken again.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.report import BUSY  # noqa: E402
from benchmarks.workloads import WORKLOADS  # noqa: E402

FIGURES = ROOT / "docs" / "figures" / "benchmarks.json"
NEXMARK_FIGURES = FIGURES.with_name("nexmark.json")
BENCHMARKS_PAGE = ROOT / "docs" / "research" / "benchmarks.md"
NEXMARK_PAGE = BENCHMARKS_PAGE.with_name("nexmark.md")
NOT_MEASURED = "Not measured yet."
BEHIND_S = 10
"""Who takes longer than that for its results once rows have ceased to arrive has fallen behind them: its latency is
that of a queue, and grows with the run."""
NAMES = {
    "sluice": "Sluice, `readFiles`",
    "sluice-stream": "Sluice, `readStream`",
    "sluice-parquet": "Sluice, `readFiles`, Parquet sink",
    "sluice-cluster": "Sluice, `readFiles`, two executors of one core",
    "sluice-batch": "Sluice, `readFiles`, `foreachBatch` sink",
    "spark-heap": "Spark, heap provider",
    "spark-rocksdb": "Spark, RocksDB",
    "spark-pandas": "Spark, `transformWithStateInPandas`",
    "flink": "Flink SQL, heap state",
    "duckdb": "DuckDB, all rows at once",
    "pathway": "Pathway",
    "bytewax": "Bytewax",
}
COLUMNS = {
    "Sluice": ("sluice",),
    "Spark, heap": ("spark-heap",),
    "Spark, RocksDB": ("spark-rocksdb", "spark-pandas"),
    "Flink SQL": ("flink",),
    "DuckDB": ("duckdb",),
}
"""Contenders side by side; where a workload needs another one of the same kind, it takes the place."""
PHASED = {
    ("uniform", "sluice"): "`uniform`, `readFiles`",
    ("uniform", "sluice-stream"): "`uniform`, `readStream`",
    ("trickle", "sluice"): "`trickle`",
    ("sliding", "sluice"): "`sliding`",
    ("last", "sluice"): "`last`",
}
"""Runs whose epochs are shown by phases."""
Document = dict[str, Any]
Run = dict[str, Any]
Runs = dict[str, Run]
Section = Callable[[Document], str]


def write_page(page: str, sections: Mapping[str, Section], document: Document) -> str:
    """The page with the measured part of each section as the figures have it; of some none were taken yet."""
    for name, section in sections.items():
        begin, end = f"<!-- {name}: scripts/benchmark_page.py -->\n", f"<!-- end of {name} -->"
        text = f"{begin}\n{section(document) or NOT_MEASURED}\n\n{end}"
        page = re.sub(f"{begin}.*?{end}", lambda _, text=text: text, page, flags=re.DOTALL)
    return page


def disturbed(document: Document) -> list[str]:
    """Runs beside which other processes took too much of the machine."""
    runs = [(f"{run['workload']} {run['contender']}", run) for run in document.get("results", ())]
    for part in ("many", "latency", "first"):
        runs += [
            (f"{part} {run.get('name') or run['contender']}", run) for run in document.get(part, {}).get("runs", ())
        ]
    nexmark = document.get("nexmark", {}).get("runs", ())
    runs += [(f"nexmark {run['workload']} {run['contender']}", run) for run in nexmark]
    return [f"{name} ({run['others']:.0%})" for name, run in runs if run["others"] > BUSY]


def summary_section(document: Document) -> str:
    """Rows a second of everybody in one table, and latencies."""
    rates = {
        (run["workload"], run["contender"]): run["figures"].get("warm_rate") for run in document.get("results", ())
    }
    peers = ("sluice", "spark-heap", "spark-rocksdb", "flink", "duckdb")
    rows = [
        [text, *(f"{rate:,.0f}" if (rate := rates.get((workload, peer))) else "" for peer in peers)]
        for workload, text in IN_SHORT.items()
        if rates.get((workload, "sluice"))
    ]
    if not rows:
        return ""
    table = _table(["rows a second, 2 cores", *(NAMES[peer].removesuffix(", `readFiles`") for peer in peers)], rows)
    return "\n\n".join([table, *_latency_in_short(document)])


def _latency_in_short(document: Document) -> Iterator[str]:
    runs = [run for run in document.get("latency", {}).get("runs", ()) if "p50" in run["figures"]]
    if runs:
        each = (
            f"{NAMES[run['contender']].removesuffix(', `readFiles`')} {run['figures']['p50']:.2f} s and "
            f"{run['figures']['p99']:.2f} s{' (falls behind)' if run['figures']['drained_seconds'] > BEHIND_S else ''}"
            for run in runs
        )
        yield f"From a row to its result, median and 99th percentile, 20,000 rows a second: {'; '.join(each)}."


def machine_section(document: Document) -> str:
    """With what it was measured, and where."""
    if not document:
        return ""
    versions, machine = document["versions"], document["machine"]
    named = [f"{name} {version}" for name, version in versions.items() if name not in ("python", "java")]
    java = re.sub(r"[^0-9.]*([0-9.]+).*", r"\1", versions["java"])
    return (
        f"Python {versions['python']}, {', '.join(named)}, Java {java}; {machine['cores']} cores "
        f"({machine['processor']}), {machine['memory']}. While a run went on, other processes took less than "
        f"{BUSY:.0%} of the machine."
    )


def throughput_section(document: Document) -> str:
    """Rows a second and memory of every contender, a row a workload, and the bars that concern Sluice alone."""
    runs = {(run["workload"], run["contender"]): run for run in document.get("results", ())}
    if not runs:
        return ""
    measured = [name for name in WORKLOADS if name != "trickle" and (name, "sluice") in runs]
    bars = {(bar["workload"], bar["what"]): bar for bar in document["bars"]}
    beside_peers = {(name, _beside(peer)) for name, peer in runs}
    rates = [[f"`{name}`", *_cells(name, runs, lambda run: _peer_rate(run, bars))] for name in measured]
    return "\n\n".join(
        [
            "Rows a second. In brackets: how many times that Sluice takes in, beside the least asked for.",
            _table(["workload", *COLUMNS], rates),
            _agreement(list(runs.values())),
            *_peaks(runs),
            "Sluice beside itself, and nearly empty epochs:",
            _bars([bar for key, bar in bars.items() if key not in beside_peers]),
        ]
    )


def _cells(workload: str, runs: Mapping[tuple[str, str], Run], write: Callable[[Run], str]) -> Iterator[str]:
    """What is written of the first contender of each column that took part in a workload."""
    for contenders in COLUMNS.values():
        present = (runs[workload, name] for name in contenders if (workload, name) in runs)
        yield next((write(run) for run in present), "")


def _peer_rate(run: Run, bars: Mapping[tuple[str, str], Run]) -> str:
    if not run["figures"]:
        return "failed"
    bar = bars.get((run["workload"], _beside(run["contender"])))
    return f"{run['figures']['warm_rate']:,.0f}" + (f" ({_judged(bar)})" if bar else "")


def _peaks(runs: Mapping[tuple[str, str], Run]) -> Iterator[str]:
    """The memory of all on the first workload, and the most that Sluice took."""
    peaks = {name: sum(run["peak"].values()) for name, run in runs.items() if run["figures"]}
    first = [f"{column} {cell}" for column, cell in zip(COLUMNS, _cells("uniform", runs, _peak), strict=True) if cell]
    if first:
        workload, contender = max((name for name in peaks if name[1].startswith("sluice")), key=peaks.__getitem__)
        yield (
            f"Peak memory of `uniform` in MB: {'; '.join(first)}. The most that Sluice took: "
            f"{peaks[workload, contender]:,.0f} (`{workload}`, {NAMES[contender].removeprefix('Sluice, ')})."
        )


def _peak(run: Run) -> str:
    return f"{sum(run['peak'].values()):,.0f}" if run["figures"] else ""


def _beside(peer: str) -> str:
    """How bars name Sluice's rate beside that of a peer."""
    return f"sluice / {peer}"


def _agreement(runs: Sequence[Run]) -> str:
    """Whose results are DuckDB's; those that are not, and runs that failed, by name."""
    agreeing = sum(run["check"].startswith("agrees") for run in runs)
    sentences = [f"The results of {agreeing} of {len(runs)} runs were compared with DuckDB's and agree."]
    sentences += [f"{run['workload']}, {NAMES[run['contender']]}: {why}." for run in runs if (why := _problem(run))]
    return " ".join(sentences)


def _problem(run: Run) -> str:
    wrong = run["check"] if run["check"].startswith("WRONG") else ""
    return run["failure"] or wrong


def _judged(bar: Run) -> str:
    """A ratio beside the bar it is held to."""
    ratio = f"{bar['ratio']:.1f}" if bar["ratio"] >= 10 else f"{bar['ratio']:.2f}"
    if bar["bar"] is None:
        return ratio
    signs = ("≤", ">") if bar["at_most"] else ("≥", "<")
    return f"{ratio} {signs[not bar['met']]} {bar['bar']:g}" + ("" if bar["met"] else " **missed**")


def phases_section(document: Document) -> str:
    """Where a warm epoch of Sluice goes, of a few kinds of epochs."""
    figures = {(run["workload"], run["contender"]): run["figures"] for run in document.get("results", ())}
    shown = {title: figures[run] for run, title in PHASED.items() if "phases" in figures.get(run, ())}
    rows = [
        [title, *(f"{1000 * seconds:,.0f}" for seconds in (run["batch_seconds"], *run["phases"].values()))]
        for title, run in shown.items()
    ]
    return _table(["workload", "epoch", *next(iter(shown.values()))["phases"]], rows) if rows else ""


def units_section(document: Document) -> str:
    """What many units cost the driver."""
    rows = [
        [f"{case['units']:,}", f"`{case['policy']}`" + ", scattered" * case["scattered"], f"{case['rows']:,}"]
        + [f"{case['usual'][name] / 1000:,.0f}" for name in ("entry_bytes", "task_bytes")]
        + [f"{case['usual']['kept_bytes'] / 1e6:,.1f}", f"{1000 * case['usual']['total']:,.0f}"]
        for case in document.get("units", ())
    ]
    head = ["units", "policy", "rows a stream", "entry, kB", "tasks, kB", "kept, MB", "driver, ms"]
    return _table(head, rows) if rows else ""


def many_section(document: Document) -> str:
    """What was measured of many queries, in Markdown."""
    if "many" not in document:
        return ""
    many, runs = document["many"], {run["name"]: run for run in document["many"]["runs"]}
    counted = f"Counted were {many['scale']['epochs']} epochs, of Spark and of single flows"
    return "\n\n".join(
        [
            f"{counted} {many['scale']['spark_epochs']}.",
            _table(
                [
                    "run",
                    "queries",
                    "rows/s of all queries",
                    "s an epoch",
                    "ms a query",
                    "nearly empty, s",
                    "peak memory, MB",
                ],
                _rates(runs),
            ),
            *_sentences(many, runs),
            _bars(many["bars"]),
        ]
    )


def latency_section(document: Document) -> str:
    """What was measured of latency and of starts, in Markdown."""
    if "latency" not in document or "first" not in document:
        return ""
    latency, first = document["latency"], document["first"]
    seconds, warm_up = latency["scale"]["seconds"], latency["scale"]["warm_up_seconds"]
    head = ["contender", "p50, s", "p95, s", "p99, s", "all results after, s", "peak memory, MB", "processor s"]
    files, starts = first["scale"]["first_files"], first["scale"]["starts"]
    return "\n\n".join(
        [
            f"Rows arrived for {seconds} s, of which the first {warm_up} s do not count.",
            _table(head, [_latencies(run) for run in latency["runs"]]),
            *(f"{NAMES[peer]} is left out: {why}." for peer, why in latency["left_out"].items()),
            _agreement(latency["runs"]),
            _bars(latency["bars"]),
            f"From `start()` to the first result, {files} files of each stream being there, {starts} starts:",
            _table(["contender", "warm, s", "first of the session, s"], [_starts(run) for run in first["runs"]]),
        ]
    )


def nexmark_section(document: Document) -> str:
    """Rows a second of every query of Nexmark by all who ran it, and what others refused."""
    if "nexmark" not in document:
        return ""
    nexmark = document["nexmark"]
    events, runs = nexmark["scale"]["events"], {(run["workload"], run["contender"]): run for run in nexmark["runs"]}
    bars = {bar["what"]: bar for bar in nexmark["bars"]}
    queries = sorted({run["workload"] for run in nexmark["runs"]}, key=lambda query: int(query[1:]))
    peers = list(dict.fromkeys(run["contender"] for run in nexmark["runs"]))
    rows = [
        [query, *(_nexmark_rate(runs.get((query, peer)), bars.get(f"{query}, {_beside(peer)}")) for peer in peers)]
        for query in queries
    ]
    files = f"{events['count']:,} events in {events['files']} files of each stream, seed {events['seed']}"
    return "\n\n".join(
        [
            _where(document),
            f"Rows a second, both cores, of {files}. In brackets: how many times that Sluice takes in, beside the "
            "least asked for.",
            _table(["query", *(NAMES[peer].removesuffix(", `readFiles`") for peer in peers)], rows),
            *_refusals(nexmark["runs"]),
        ]
    )


def _where(document: Document) -> str:
    """With what it was measured, unless the page of the other benchmarks says the same."""
    same = machine_section(document) == machine_section(read_figures(BENCHMARKS_PAGE))
    return (
        "The versions and the machine are those of the other [benchmarks](benchmarks.md)."
        if same
        else machine_section(document)
    )


def _nexmark_rate(run: Run | None, bar: Run | None) -> str:
    rate = run["figures"].get("warm_rate") if run else None
    return (f"{rate:,.0f}" if rate else "not run") + (f" ({_judged(bar)})" if bar else "")


def _refusals(runs: Sequence[Run]) -> Iterator[str]:
    """What was not run and why, each reason once. Spark's reasons are known by the class in brackets."""
    refused: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        if run["failure"]:
            named = re.match(r"\[\w+\]", run["failure"])
            reason = f"`{named[0]}`" if named else run["failure"].replace("|", "\\|")
            refused.setdefault((NAMES[run["contender"]], reason), []).append(run["workload"])
    if refused:
        rows = [[contender, ", ".join(queries), reason] for (contender, reason), queries in refused.items()]
        yield "What was not run, and why:"
        yield _table(["contender", "queries", "reason"], rows)


def _latencies(run: Run) -> list[str]:
    figures, name = run["figures"], NAMES[run["contender"]]
    if "p50" not in figures:
        return [name, "none", *[""] * 5]
    return [
        name,
        *(f"{figures[p]:.2f}" for p in ("p50", "p95", "p99")),
        f"{figures['drained_seconds']:.1f}",
        f"{sum(run['peak'].values()):,.0f}",
        f"{run['cpu_seconds']:,.0f}",
    ]


def _starts(run: Run) -> list[str]:
    figures, name = run["figures"], NAMES[run["contender"]]
    return [name, *(f"{figures[kind]:.2f}" for kind in ("warm", "cold"))] if figures else [name, run["failure"], ""]


def _rates(runs: Runs) -> list[list[str]]:
    rows = []
    for run in runs.values():
        figures = run["figures"]
        if "query_rate" in figures and "sharing" not in run["name"]:
            epoch = figures["seconds"] / figures["epochs"]
            few = figures.get("few_epoch_seconds")
            rate, each = f"{figures['query_rate']:,.0f}", f"{1000 * epoch / figures['queries']:,.1f}"
            cells = [str(figures["queries"]), rate, f"{epoch:.2f}", each]
            rows.append([_title(run["name"]), *cells, "" if few is None else f"{few:.2f}", _peak(run)])
    return rows


def _title(name: str) -> str:
    return "Spark's own queries" if name.startswith("spark") else f"Sluice, {'one flow' if name == 'flow' else name}"


def _sentences(many: dict[str, Any], runs: Runs) -> list[str]:
    flow, sentences = runs["flow"]["figures"], []
    ended = [run["figures"]["queries"] for name, run in runs.items() if name.startswith("spark") and run["figures"]]
    failed = [name.split()[1] for name, run in runs.items() if name.startswith("spark") and run["failure"]]
    if ended:
        text = f"Spark ended with {max(ended)} queries in one session"
        sentences.append(
            f"{text}; with {failed[0]} it did not within {many['scale']['seconds']:,.0f} s." if failed else f"{text}."
        )
    alone = runs.get("single flows", {}).get("figures", {})
    if alone:
        each = mean(alone["alone_seconds"].values()) / alone["epochs"]
        sentences.append(
            f"Single flows of Sluice, {len(alone['alone_seconds'])} of the queries one after the other: {each:.2f} s "
            "an epoch each."
        )
    checked = (
        f"The results of {flow['checked']} of the {flow['queries']} queries were compared with DuckDB's, row by row"
    )
    sentences.append(f"{checked}: {'; '.join(flow['wrong']) or 'they are the same'}.")
    if "few_entry_bytes" in flow:
        entry = f"The journal's entry of a nearly empty epoch has {flow['few_entry_bytes'] / 1000:,.0f} kB"
        sentences.append(
            f"{entry}. The flow was started in {flow['start_seconds']:.1f} s, and has {flow['units']} units."
        )
    return [" ".join(sentences)]


def _bars(bars: Sequence[Run]) -> str:
    head = ["what", "Sluice", "other", "ratio and bar"]
    rows = [_bar(bar) for bar in bars if bar["bar"] is not None]
    return _table(head, rows) if rows else ""


def _bar(bar: Run) -> list[str]:
    what, other = f"`{bar['workload']}`: {bar['what']}", f"{_number(bar['theirs'])} {bar['unit']}"
    return [what, _number(bar["ours"]), other, _judged(bar)]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


IN_SHORT = {
    "uniform": "window join",
    "skewed": "window join, skewed keys",
    "wide": "window join, wide rows",
    "three": "join of three streams",
    "sliding": "sliding windows, 100,000 groups",
}
PAGES: dict[Path, dict[str, Section]] = {
    ROOT / "README.md": {"summary": summary_section},
    BENCHMARKS_PAGE: {
        "machine": machine_section,
        "throughput": throughput_section,
        "units": units_section,
        "many": many_section,
        "latency": latency_section,
        "phases": phases_section,
    },
    NEXMARK_PAGE: {"nexmark": nexmark_section},
}


def read_figures(page: Path) -> Document:
    """All that was measured for a page; nothing if nothing was."""
    path = NEXMARK_FIGURES if page == NEXMARK_PAGE else FIGURES
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


if __name__ == "__main__":
    figures = {path: read_figures(path) for path in PAGES}
    if again := sorted({run for measured in figures.values() for run in disturbed(measured)}):
        sys.exit(f"take these again on a quiet machine: {', '.join(again)}")
    for path, sections in PAGES.items():
        path.write_text(write_page(path.read_text(encoding="utf-8"), sections, figures[path]), encoding="utf-8")
