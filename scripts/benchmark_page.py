"""Writes what was measured of many queries and of latency into docs/benchmarks.md anew, from docs/figures.

python -m benchmarks.run --only many --json docs/figures/many.json && python scripts/benchmark_page.py
python -m benchmarks.run --only latency,first --json docs/figures/latency.json && python scripts/benchmark_page.py
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
PAGE, FIGURES = DOCS / "benchmarks.md", DOCS / "figures"
NOT_MEASURED = "Not measured yet."
NAMES = {
    "sluice": "Sluice",
    "spark-heap": "Spark, heap provider",
    "spark-rocksdb": "Spark, RocksDB",
    "pathway": "Pathway",
    "bytewax": "Bytewax",
}


def write_page(page: str) -> str:
    """The page with the measured part of each section as its figures have it; of some none were taken yet."""
    for name, section in SECTIONS.items():
        begin, end = f"<!-- {name}: scripts/benchmark_page.py -->\n", f"<!-- end of {name} -->"
        figures = FIGURES / f"{name}.json"
        measured = section(json.loads(figures.read_text(encoding="utf-8"))) if figures.exists() else NOT_MEASURED
        text = f"{begin}\n{measured}\n{end}"
        page = re.sub(f"{begin}.*?{end}", lambda _, text=text: text, page, flags=re.DOTALL)
    return page


def many_section(document: dict[str, Any]) -> str:
    """What was measured of many queries, in Markdown."""
    many, runs = document["many"], {run["name"]: run for run in document["many"]["runs"]}
    counted = f"Counted were {many['scale']['epochs']} epochs, of Spark and of single flows"
    return "\n\n".join(
        [
            f"{_where(document, (), runs.values())} {counted} {many['scale']['spark_epochs']}.",
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


def latency_section(document: dict[str, Any]) -> str:
    """What was measured of latency and of starts, in Markdown."""
    latency, first = document["latency"], document["first"]
    runs = [*latency["runs"], *first["runs"]]
    seconds, warm_up = latency["scale"]["seconds"], latency["scale"]["warm_up_seconds"]
    head = ["contender", "p50, s", "p95, s", "p99, s", "results", "batches", "all results after, s", "against DuckDB"]
    starts = ["contender", "warm, s", "first of the session, s", "starts"]
    return "\n\n".join(
        [
            f"{_where(document, ('pathway', 'bytewax'), runs)} Rows arrived for {seconds} s, of which the first "
            f"{warm_up} s do not count.",
            _table([*head, "peak memory, MB", "processor s"], [_latencies(run) for run in latency["runs"]]),
            *(f"{NAMES[peer]} is left out: {why}." for peer, why in latency["left_out"].items()),
            _bars(latency["bars"]),
            f"From `start()` to the first result, {first['scale']['first_files']} files of each stream being there:",
            _table(starts, [_starts(run) for run in first["runs"]]),
            _bars(first["bars"]),
        ]
    )


def _where(document: dict[str, Any], peers: Sequence[str], runs: Iterable[dict[str, Any]]) -> str:
    """What it ran with, where, and how much of the machine was in other hands."""
    versions, machine = document["versions"], document["machine"]
    named = ("pyspark", "pyarrow", "numpy", "duckdb", *peers)
    where = ", ".join([*(f"{name} {versions[name]}" for name in named), f"Python {versions['python']}"])
    others = [run["others"] for run in runs]
    return (
        f"{where}; {machine['cores']} cores ({machine['processor']}), {machine['memory']}. Other processes took "
        f"{min(others):.0%} to {max(others):.0%} of the machine during the runs."
    )


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
    return _table(["what", "Sluice", "other", "unit", "bar", "measured", ""], [_bar(bar) for bar in bars])


def _bar(bar: dict[str, Any]) -> list[str]:
    limit = "none" if bar["bar"] is None else f"at {'most' if bar['at_most'] else 'least'} {bar['bar']:g}"
    met = {True: "met", False: "**missed**", None: ""}[bar["met"]]
    return [bar["what"], _number(bar["ours"]), _number(bar["theirs"]), bar["unit"], limit, f"{bar['ratio']:.2f}", met]


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


SECTIONS: dict[str, Callable[[dict[str, Any]], str]] = {"many": many_section, "latency": latency_section}


if __name__ == "__main__":
    PAGE.write_text(write_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
