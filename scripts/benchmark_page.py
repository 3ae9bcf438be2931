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
NEXMARK_PAGE = ROOT / "docs" / "research" / "nexmark.md"
NOT_MEASURED = "Not measured yet."
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
Document = dict[str, Any]
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
            f"{NAMES[run['contender']].removesuffix(', `readFiles`')} {run['figures']['p50']:.1f} s and "
            f"{run['figures']['p99']:.1f} s"
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
    """Rows a second of every contender, workload by workload, and the bars."""
    return "\n\n".join([*_workloads(document), *([_bars(document["bars"])] if document.get("results") else [])])


def phases_section(document: Document) -> str:
    """Where a warm epoch of Sluice goes."""
    runs = [run for run in document.get("results", ()) if "phases" in run["figures"]]
    if not runs:
        return ""
    phases = list(runs[0]["figures"]["phases"])
    rows = [
        [f"`{run['workload']}`", NAMES[run["contender"]], f"{run['figures']['batch_seconds']:.3f}"]
        + [f"{run['figures']['phases'][phase]:.3f}" for phase in phases]
        for run in runs
    ]
    return _table(["workload", "contender", "epoch", *phases], rows)


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


def _workloads(document: Document) -> Iterator[str]:
    results = document.get("results", ())
    for name, workload in WORKLOADS.items():
        runs = [run for run in results if run["workload"] == name]
        if runs:
            nearly_empty = name == "trickle"
            figures = ["an epoch, s"] if nearly_empty else ["rows/s warm", "with start-up"]
            head = ["contender", *figures, "Sluice is", "results", "peak memory, MB"]
            ours = next((run["figures"] for run in runs if run["contender"] == "sluice"), {})
            yield f"`{name}`: {workload.about}"
            yield _table(head, [_throughput(run, ours, nearly_empty) for run in runs])


def _throughput(run: dict[str, Any], ours: dict[str, Any], nearly_empty: bool) -> list[str]:
    figures, name = run["figures"], NAMES[run["contender"]]
    if not figures:
        return [name, run["failure"], *[""] * (3 if nearly_empty else 4)]
    key = "batch_seconds" if nearly_empty else "warm_rate"
    rates = [f"{figures[key]:.3f}"] if nearly_empty else [f"{figures[rate]:,.0f}" for rate in (key, "startup_rate")]
    beside = "" if run["contender"].startswith("sluice") or not ours else _ratio(ours[key] / figures[key])
    return [name, *rates, beside, run["check"], f"{sum(run['peak'].values()):,.0f}"]


def _ratio(ratio: float) -> str:
    return f"{ratio:.1f} times" if ratio >= 1 else f"{ratio:.2f} of it"


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
                ["run", "queries", "rows/s of all queries", "s an epoch", "ms a query", "nearly empty epoch, s"],
                _rates(runs),
            ),
            *_sentences(many, runs),
            _bars(many["bars"]),
            "Peak memory in MB, as proportional set size; state is that of all sites; processor time with start-up:",
            _table(["run", "total", "driver", "JVM", "Python workers", "tmpfs", "state", "processor s"], _memory(runs)),
        ]
    )


def latency_section(document: Document) -> str:
    """What was measured of latency and of starts, in Markdown."""
    if "latency" not in document or "first" not in document:
        return ""
    latency, first = document["latency"], document["first"]
    seconds, warm_up = latency["scale"]["seconds"], latency["scale"]["warm_up_seconds"]
    head = ["contender", "p50, s", "p95, s", "p99, s", "results", "batches", "all results after, s", "against DuckDB"]
    starts = ["contender", "warm, s", "first of the session, s", "starts"]
    return "\n\n".join(
        [
            f"Rows arrived for {seconds} s, of which the first {warm_up} s do not count.",
            _table([*head, "peak memory, MB", "processor s"], [_latencies(run) for run in latency["runs"]]),
            *(f"{NAMES[peer]} is left out: {why}." for peer, why in latency["left_out"].items()),
            _bars(latency["bars"]),
            f"From `start()` to the first result, {first['scale']['first_files']} files of each stream being there:",
            _table(starts, [_starts(run) for run in first["runs"]]),
            _bars(first["bars"]),
        ]
    )


def nexmark_section(document: Document) -> str:
    """Rows a second of every query of Nexmark by all who ran it, and what others refused."""
    if "nexmark" not in document:
        return ""
    nexmark = document["nexmark"]
    events, runs = nexmark["scale"]["events"], {(run["workload"], run["contender"]): run for run in nexmark["runs"]}
    queries = list(dict.fromkeys(run["workload"] for run in nexmark["runs"]))
    peers = list(dict.fromkeys(run["contender"] for run in nexmark["runs"] if run["contender"] != "sluice"))
    head = ["query", "Sluice", "results", *(cell for peer in peers for cell in (NAMES[peer], "Sluice is")), "bar", ""]
    refused = [
        [run["workload"], NAMES[run["contender"]], run["failure"].replace("|", "\\|")]
        for run in nexmark["runs"]
        if run["failure"]
    ]
    files = f"{events['count']:,} events in {events['files']} files of each stream, seed {events['seed']}"
    return "\n\n".join(
        [
            machine_section(document),
            f"Rows a second, both cores, of {files}:",
            _table(head, [_nexmark_query(query, peers, runs, nexmark["bars"]) for query in queries]),
            *(["What was not run, and why:", _table(["query", "contender", "reason"], refused)] if refused else []),
        ]
    )


def _nexmark_query(
    query: str, peers: list[str], runs: dict[tuple[str, str], dict[str, Any]], bars: list[dict[str, Any]]
) -> list[str]:
    rates = {peer: runs.get((query, peer), {}).get("figures", {}).get("warm_rate") for peer in ("sluice", *peers)}
    ours = rates["sluice"]
    beside = [
        cell
        for peer in peers
        for cell in (_rate(rates[peer]), _ratio(ours / rates[peer]) if ours and rates[peer] else "")
    ]
    own_bars = [bar for bar in bars if bar["what"].startswith(f"{query},") and bar["bar"] is not None]
    limit = f"{own_bars[0]['bar']:g} times" if own_bars else ""
    met = ("met" if all(bar["met"] for bar in own_bars) else "**missed**") if own_bars else ""
    return [query, _rate(ours), runs.get((query, "sluice"), {}).get("check", ""), *beside, limit, met]


def _rate(rate: float | None) -> str:
    return f"{rate:,.0f}" if rate else "not run"


def _latencies(run: dict[str, Any]) -> list[str]:
    figures, name = run["figures"], NAMES[run["contender"]]
    if "p50" not in figures:
        return [name, *[""] * 6, run["failure"] or "no result of a counted row", "", ""]
    return [
        name,
        *(f"{figures[p]:.2f}" for p in ("p50", "p95", "p99")),
        f"{figures['results']:,}",
        f"{figures['batches']:,}",
        f"{figures['drained_seconds']:.1f}",
        run["check"],
        f"{sum(run['peak'].values()):,.0f}",
        f"{run['cpu_seconds']:,.0f}",
    ]


def _starts(run: dict[str, Any]) -> list[str]:
    figures, name = run["figures"], NAMES[run["contender"]]
    if not figures:
        return [name, run["failure"], "", ""]
    return [name, f"{figures['warm']:.2f}", f"{figures['cold']:.2f}", str(len(figures["starts"]))]


def _rates(runs: dict[str, dict[str, Any]]) -> list[list[str]]:
    rows = []
    for run in runs.values():
        figures = run["figures"]
        if "query_rate" in figures and "sharing" not in run["name"]:
            epoch = figures["seconds"] / figures["epochs"]
            few = figures.get("few_epoch_seconds")
            rate, each = f"{figures['query_rate']:,.0f}", f"{1000 * epoch / figures['queries']:,.1f}"
            cells = [str(figures["queries"]), rate, f"{epoch:.2f}", each]
            rows.append([_title(run["name"]), *cells, "" if few is None else f"{few:.2f}"])
    return rows


def _title(name: str) -> str:
    return "Spark's own queries" if name.startswith("spark") else f"Sluice, {'one flow' if name == 'flow' else name}"


def _sentences(many: dict[str, Any], runs: dict[str, dict[str, Any]]) -> list[str]:
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


def _bars(bars: list[dict[str, Any]]) -> str:
    head = ["workload", "what", "Sluice", "other", "unit", "bar", "measured", ""]
    return _table(head, [_bar(bar) for bar in bars])


def _bar(bar: dict[str, Any]) -> list[str]:
    limit = "none" if bar["bar"] is None else f"at {'most' if bar['at_most'] else 'least'} {bar['bar']:g}"
    met = {True: "met", False: "**missed**", None: ""}[bar["met"]]
    measured = f"{bar['ratio']:.2f}"
    return [
        f"`{bar['workload']}`",
        bar["what"],
        _number(bar["ours"]),
        _number(bar["theirs"]),
        bar["unit"],
        limit,
        measured,
        met,
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _memory(runs: dict[str, dict[str, Any]]) -> list[list[str]]:
    return [
        [name, f"{sum(run['peak'].values()):,.0f}"]
        + [f"{run['peak'][kind]:,.0f}" for kind in ("driver", "jvm", "workers", "tmpfs")]
        + [f"{run['figures']['state_bytes'] / 1e6:,.1f}" if "state_bytes" in run["figures"] else ""]
        + [f"{run['cpu_seconds']:,.0f}"]
        for name, run in runs.items()
        if run["figures"]
    ]


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
    ROOT / "docs" / "research" / "benchmarks.md": {
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
