"""The `sluice` command. What only one of its commands needs is imported when it is given: `--version` needs nothing."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import TypeVar

from sluice import FlowError, SluiceError, __version__
from sluice.dashboard.terminal_style import printable

T = TypeVar("T")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 if all went well, 1 if a query failed, 2 if what was asked for cannot be done."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a character must not end the command
    given, passed_on = _divided(list(sys.argv[1:] if arguments is None else arguments))
    chosen = _parser().parse_args(given)
    try:
        return _carry_out(chosen, passed_on)
    except SluiceError as problem:
        print(printable(f"sluice: {problem}"), file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 0


def _carry_out(chosen: argparse.Namespace, passed_on: list[str]) -> int:
    match chosen.command:
        case "inspect":
            from sluice.cli.inspection import inspect

            if chosen.checkpoint is None:  # the option takes what follows it
                chosen.checkpoint, chosen.state = chosen.state, ""
            if not chosen.checkpoint:
                raise FlowError("sluice inspect needs a checkpoint: the query's checkpointLocation")
            if chosen.key and not chosen.state:
                raise FlowError("--key needs an operator: --state OPERATOR --key COLUMN=VALUE")
            if chosen.state is not None:
                from sluice.cli.state_text import describe_states, show_state

                where, operator = chosen.checkpoint, chosen.state
                print(show_state(where, operator, dict(chosen.key)) if operator else describe_states(where))
                return 0
            print(inspect(chosen.checkpoint, chosen.epochs))
            if chosen.verify:
                from sluice.cli.verification import verify

                verified = verify(chosen.checkpoint)
                print(printable(f"\n{verified}"))
                return 1 if verified.problems else 0
        case "migrate":
            from sluice.cli.migrate import migrate_checkpoint

            print(printable(migrate_checkpoint(chosen.checkpoint, chosen.take_over)))
        case "report":
            from sluice.dashboard.report import report_checkpoint

            report_checkpoint(chosen.checkpoint, chosen.output)
            print(f"wrote {chosen.output}")
        case "top":
            from sluice.cli.top import top

            return top(chosen.checkpoint, chosen.interval, chosen.once)
        case "ui":
            from sluice.cli.ui import ui

            watched = chosen.checkpoint, chosen.host, chosen.port, chosen.interval
            return ui(*watched, chosen.with_parent, chosen.control)
        case "metrics":
            from sluice.cli import metrics

            if chosen.dashboard:
                print(metrics.grafana_dashboard(), end="")
            elif chosen.checkpoint is None:
                raise FlowError("sluice metrics needs a checkpoint, or --dashboard")
            elif chosen.port is None:
                print(metrics.print_metrics(chosen.checkpoint), end="")
            else:
                return metrics.serve_metrics(chosen.checkpoint, chosen.port, chosen.host)
        case "new":
            from sluice.cli.new import new

            print(new(chosen.directory))
        case "run":
            from sluice.cli.run import Run, run

            return run(_as(Run, chosen, arguments=tuple(passed_on)))
        case "figures":
            from sluice.cli import figures

            if chosen.list or not chosen.name:
                print(figures.list_files())
            else:
                return figures.figures(chosen.name, Path(chosen.out), chosen.workers, chosen.against)
        case "simulate":
            from sluice.cli import simulate

            if chosen.list:
                print(simulate.list_files())
            elif chosen.show:
                print(simulate.shown(chosen.show))
            else:
                return simulate.simulate(_as(simulate.Wanted, chosen))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sluice", description="Adaptive stateful streaming for PySpark.")
    parser.add_argument("--version", action="version", version=f"sluice {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    making = commands.add_parser("new", help="write a small project that runs")
    making.add_argument("directory", help="where to; it must be new or empty")

    running = commands.add_parser(
        "run",
        help="run a file that defines a flow",
        usage="sluice run [options] FILE [-- ARGS]",
        description="Run the queries that FILE's define(spark) returns, or define(spark, args) with the ARGS after --.",
    )
    running.add_argument("file", metavar="FILE", help="a Python file with a function define(spark)")
    running.add_argument("--master", help="Spark's master, such as local[4], yarn or spark://host:7077 (local[*])")
    running.add_argument("--name", help="name of the Spark application (the file's)")
    running.add_argument("--policy", help="how state is placed while the queries run, such as static")
    running.add_argument("--checkpoint", metavar="DIR", help="checkpointLocation; several queries get a directory each")
    running.add_argument("--available-now", action="store_true", help="process what is there, then end")
    running.add_argument("--report", metavar="FILE", help="write an HTML report when the queries have ended")
    running.add_argument("--ui", action="store_true", help="serve a page about each query, and print its link")
    running.add_argument("--control", action="store_true", help="with --ui: units and sites can be acted on from it")
    running.add_argument(
        "--conf", type=setting, action="append", default=[], metavar="KEY=VALUE", help="a Spark setting; repeatable"
    )

    looking = commands.add_parser("inspect", help="show a checkpoint: epochs, routing, state by tier, the last epochs")
    looking.add_argument("checkpoint", nargs="?", help="the query's checkpointLocation: a directory or URI")
    looking.add_argument("--epochs", type=_positive, default=10, help="how many of the last epochs to list (10)")

    looking.add_argument(
        "--state",
        nargs="?",
        const="",
        metavar="OPERATOR",
        help="list what operators keep; with a number or the name of a query, its first rows",
    )
    looking.add_argument(
        "--key",
        type=key_value,
        action="append",
        default=[],
        metavar="COLUMN=VALUE",
        help="with --state OPERATOR: the rows of one key; repeatable for a key of several columns",
    )
    looking.add_argument(
        "--verify", action="store_true", help="read all state and results, and say what is gone or damaged"
    )

    watching = commands.add_parser("top", help="watch a running query from its checkpoint, in a terminal")
    watching.add_argument("checkpoint", help="the query's checkpointLocation: a directory or URI")
    watching.add_argument("--interval", default="1s", help="how often to look for a new epoch (1s)")
    watching.add_argument("--once", action="store_true", help="show it once, then end")

    showing = commands.add_parser(
        "ui",
        help="show a query in a browser, from its checkpoint",
        description="Serve a page that shows a query: where its state is, how it moves and why, and what it costs.",
    )
    showing.add_argument("checkpoint", help="the query's checkpointLocation: a directory or URI")
    showing.add_argument("--port", type=_not_negative, default=0, metavar="N", help="the port (any that is free)")
    showing.add_argument("--host", default="127.0.0.1", help="the address to listen on (127.0.0.1); others get a token")
    showing.add_argument("--interval", default="1s", help="how often to look for a new epoch (1s)")
    showing.add_argument("--with-parent", action="store_true", help=argparse.SUPPRESS)
    showing.add_argument("--control", action="store_true", help=argparse.SUPPRESS)

    measuring = commands.add_parser(
        "metrics",
        help="print a checkpoint's metrics for Prometheus, or answer its scrapes",
        description="Print the metrics of a checkpoint in the text format of Prometheus; with --port, answer scrapes.",
    )
    measuring.add_argument("checkpoint", nargs="?", help="the query's checkpointLocation: a directory or URI")
    measuring.add_argument(
        "--port", type=_not_negative, metavar="N", help="answer scrapes there; 0 is any that is free"
    )
    measuring.add_argument("--host", default="127.0.0.1", help="the address to listen on (127.0.0.1)")
    measuring.add_argument("--dashboard", action="store_true", help="print a dashboard to import into Grafana")

    migrating = commands.add_parser(
        "migrate",
        help="bring a checkpoint of an older version to this one's format",
        description="Bring a checkpoint to the format of this version. What it was stays beside it.",
    )
    migrating.add_argument("checkpoint", help="the query's checkpointLocation: a directory or URI")
    migrating.add_argument(
        "--take-over", action="store_true", help="also if the process that owns it is alive; its query stops"
    )

    reporting = commands.add_parser("report", help="freeze the page of a checkpoint into one HTML file")
    reporting.add_argument("checkpoint", help="the query's checkpointLocation: a directory or URI")
    reporting.add_argument("-o", "--output", default="report.html", metavar="FILE", help="the file (report.html)")

    simulating = commands.add_parser(
        "simulate",
        help="compare policies on a simulated cluster",
        description="Run a scenario under several policies on a simulated cluster, and show what they do and why.",
    )
    simulating.add_argument("scenario", nargs="?", metavar="SCENARIO", help="a TOML file, or a ready scenario's name")
    simulating.add_argument("--list", action="store_true", help="list the ready scenarios")
    simulating.add_argument("--show", metavar="NAME", help="print a ready scenario's file, to copy and change it")
    simulating.add_argument("--policies", type=_names, default=(), metavar="A,B", help="instead of the file's")
    simulating.add_argument("--seed", type=_not_negative, metavar="N", help="instead of the file's")
    simulating.add_argument("--out", metavar="DIR", help="where charts and numbers go (simulated-NAME)")
    simulating.add_argument("--decisions", action="store_true", help="print every decision, not only the first ones")

    drawing = commands.add_parser(
        "figures",
        help="run a paper's experiments in the simulator, plot them, and hold them against what it published",
        usage="sluice figures [NAME ...] [--list] [--out DIR] [--against DIR] [--workers N]",
    )
    drawing.add_argument(
        "name",
        nargs="*",
        metavar="NAME",
        help="a paper (flux, lazy-disk, placement, d-cape, window-joins), a figure such as flux-7, or all; several "
        "are possible",
    )
    drawing.add_argument("--list", action="store_true", help="list the figures")
    drawing.add_argument("--out", default="figures", metavar="DIR", help="where charts and verdicts go (figures)")
    drawing.add_argument(
        "--against", type=Path, metavar="DIR", help="fail on what differs from the JSON files there, not on misses"
    )
    drawing.add_argument("--workers", type=_positive, metavar="N", help="simulations at a time (one a processor)")
    return parser


def _as(kind: type[T], chosen: argparse.Namespace, **more: object) -> T:
    """What was chosen, as a value of this kind."""
    return kind(**{name: value for name, value in vars(chosen).items() if name in kind.__annotations__}, **more)


def _divided(arguments: list[str]) -> tuple[list[str], list[str]]:
    """What is for `sluice run`, and what comes after `--`, for the flow."""
    if arguments[:1] != ["run"] or "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def setting(text: str) -> tuple[str, str]:
    """A Spark setting from the command line.

    >>> setting("spark.executor.memory=2g")
    ('spark.executor.memory', '2g')
    """
    key, equals, value = text.partition("=")
    if not equals or not key.startswith("spark."):
        raise argparse.ArgumentTypeError(f"{text!r} is not a Spark setting; write for example spark.executor.memory=2g")
    return key, value


def key_value(text: str) -> tuple[str, str]:
    """A key column and its value from the command line.

    >>> key_value("symbol=A=B")
    ('symbol', 'A=B')
    """
    column, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is no key column and value; write for example symbol=A")
    return column, value


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _not_negative(text: str) -> int:
    number = int(text)
    if not 0 <= number < 1 << 62:
        raise argparse.ArgumentTypeError("must be a whole number from 0 on")
    return number


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


if __name__ == "__main__":
    raise SystemExit(main())
