"""The `sluice` command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from sluice import SluiceError, __version__
from sluice.control.inspection import inspect


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 if all went well, 2 if what was asked for cannot be done."""
    parser = argparse.ArgumentParser(prog="sluice", description="Adaptive stateful streaming for PySpark.")
    parser.add_argument("--version", action="version", version=f"sluice {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    looking = commands.add_parser("inspect", help="show a checkpoint: epochs, routing, state by tier, the last epochs")
    looking.add_argument("checkpoint", help="the query's checkpointLocation: a directory or URI")
    looking.add_argument("--epochs", type=_positive, default=10, help="how many of the last epochs to list (10)")
    chosen = parser.parse_args(arguments)
    try:
        print(inspect(chosen.checkpoint, chosen.epochs))
    except SluiceError as problem:
        print(f"sluice: {problem}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 0
    return 0


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


if __name__ == "__main__":
    raise SystemExit(main())
