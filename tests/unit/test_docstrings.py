"""Every public name says what its parameters are, and has an example; tests run the examples."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import sluice
from sluice import testing
from sluice.api import progress
from sluice.api.stream import GroupedStream, WindowedStream
from sluice.api.table import Table
from sluice.model.epoch.stats import SiteStats

ROOT = Path(__file__).parents[2]
CLASSES_OF_USERS = (
    sluice.Flow,
    sluice.DataStream,
    GroupedStream,
    WindowedStream,
    Table,
    sluice.DataStreamWriter,
    sluice.Query,
)
"""Whose methods users call."""


def public_names() -> Iterator[tuple[str, Any]]:
    """Every public class and function, and the methods that users call."""
    for module in (sluice, testing):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                yield f"{module.__name__}.{name}", value
    for kind in CLASSES_OF_USERS:
        for name, value in vars(kind).items():
            if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                yield f"{kind.__name__}.{name}", value


PUBLIC = dict(public_names())


@pytest.mark.parametrize("name", PUBLIC)
def test_it_has_an_example(name: str) -> None:
    assert ">>> " in (inspect.getdoc(PUBLIC[name]) or ""), f"{name} has no example"


@pytest.mark.parametrize("name", PUBLIC)
def test_it_says_what_its_parameters_are(name: str) -> None:
    value = PUBLIC[name]
    described = set(re.findall(r"^    (\w+): ", _section(inspect.getdoc(value) or "", "Args"), re.MULTILINE))
    assert described >= set(parameters(value)), f"{name} leaves {set(parameters(value)) - described} out"


def test_the_page_on_progress_has_every_figure() -> None:
    page = (ROOT / "docs" / "reference" / "progress.md").read_text(encoding="utf-8")
    source = inspect.getsource(progress)
    figures = re.findall(r'^        "(\w+)":', source, re.MULTILINE)
    of_sites = [field.name for field in fields(SiteStats) if field.name not in ("seconds", "operators")]
    names = [*figures, *(re.sub(r"_(\w)", lambda letter: letter[1].upper(), name) for name in of_sites)]
    assert len(names) > 60 and [name for name in names if f"`{name}`" not in page] == []


def _section(text: str, heading: str) -> str:
    """A section of a docstring, empty if there is none."""
    return (re.findall(rf"^{heading}:\n((?:    .*\n?)+)", text, re.MULTILINE) or [""])[0]


def parameters(value: Any) -> list[str]:
    """Those that a caller gives and that do not speak for themselves, as settings with their meaning beside them do."""
    if isinstance(value, property) or (inspect.isclass(value) and issubclass(value, BaseException | Enum)):
        return []
    if value in CLASSES_OF_USERS and value is not sluice.Flow:  # they are had from methods
        return []
    names = [name for name in inspect.signature(value).parameters if name != "self"]
    if not inspect.isclass(value):
        return names
    hints = get_type_hints(value, include_extras=True) if issubclass(value, sluice.Policy | sluice.Freezing) else {}
    return [name for name in names if not hasattr(hints.get(name), "__metadata__")]
