"""`sluice new`: a small project that runs. Its files are those in `project/`, as they are."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

from sluice.model.errors import FlowError, StorageError

_AS_THEY_ARE = ("flow.py", "test_flow.py", "make_data.py", "README.md")
FILES = {**{name: name for name in _AS_THEY_ARE}, ".gitignore": "gitignore"}
"""What is written, and which file of `project/` it is."""


def new(directory: str) -> str:
    """Write the project into a new or empty directory; returns what to do next. Nothing is ever overwritten."""
    home = Path(directory)
    if home.exists() and not home.is_dir():
        raise FlowError(f"{directory} is a file; give a new directory")
    try:
        home.mkdir(parents=True, exist_ok=True)
        there = sorted(os.listdir(home))
        if there:
            more = ", …" if len(there) > 3 else ""
            raise FlowError(f"{directory} is not empty ({', '.join(there[:3])}{more}); give a new or empty directory")
        for name, source in FILES.items():
            text = files("sluice.cli").joinpath("project", source).read_text(encoding="utf-8")
            with open(home / name, "x", encoding="utf-8") as file:
                file.write(
                    text.replace("# PROJECT\n", f"# {home.resolve().name}\n", 1) if name == "README.md" else text
                )
    except OSError as problem:
        raise StorageError(f"cannot write the project to {directory}: {problem.strerror or problem}") from problem
    change = f"  cd {directory}\n" if home.resolve() != Path.cwd() else ""
    return (
        f"{directory} has a flow. Next:\n{change}"
        "  python make_data.py\n"
        "  sluice run flow.py --available-now\n"
        "  sluice ui checkpoint\n"
        "README.md tells the rest."
    )
