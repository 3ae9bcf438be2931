"""A scenario as a TOML file: its world, the cluster, the workload, and which policies are compared.

`docs/research/simulator.md` has every key. What a file does not say is as in the paper of its world.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, get_args

from sluice.model.errors import FlowError, ScenarioError
from sluice.policies import policy
from sluice.sim.hardware import Hardware
from sluice.sim.notation import Seconds, hints_of
from sluice.sim.scenario import Scenario
from sluice.sim.section import Section, meant, sections
from sluice.sim.worlds import WORLDS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MOST_INTERVALS = 100_000
"""More are a unit that was mistaken."""


@dataclass(frozen=True)
class Trial:
    """One simulation of a comparison."""

    label: str
    variant: str
    scenario: Scenario
    policy: str


@dataclass(frozen=True)
class Comparison:
    """What is compared: policies, each in every variant of a scenario; static alone where nothing can be decided."""

    variants: Mapping[str, Scenario]
    policies: tuple[str, ...]
    about: str = ""

    @property
    def scenario(self) -> Scenario:
        """The first variant, which is the only one most often."""
        return next(iter(self.variants.values()))

    @property
    def trials(self) -> tuple[Trial, ...]:
        several = len(self.variants) > 1
        return tuple(
            Trial(f"{variant}, {name}" if several else name, variant, scenario, name)
            for variant, scenario in self.variants.items()
            for name in self.policies
            if scenario.decides or name == "static"
        )


def read_scenarios(
    path: str | os.PathLike[str], *, policies: Sequence[str] = (), seed: int | None = None
) -> Comparison:
    """The file's comparison; `policies` and `seed` take the place of the file's own where they are given."""
    try:
        text = Path(path).read_bytes().decode()
    except FileNotFoundError:
        raise ScenarioError(f"there is no file {path}") from None
    except UnicodeDecodeError:
        raise ScenarioError(f"{path} is not a TOML file: it is not text in UTF-8") from None
    except OSError as problem:
        raise ScenarioError(f"cannot read {path}: {problem.strerror or problem}") from None
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise ScenarioError(f"{path} is not a TOML file: {problem}") from None
    return comparison(document, Path(path).stem, policies=policies, seed=seed)


def comparison(
    document: Mapping[str, object], name: str = "scenario", *, policies: Sequence[str] = (), seed: int | None = None
) -> Comparison:
    """What a file says, as read from its TOML; `name` is for a file that has none."""
    world = _world(document.get("world", "flux"))
    file = _sections(world, document)
    top, run = file[""], file["run"]
    values: dict[str, Any] = {"name": top.get("name", str, name)}
    for title, names in world.sections.items():
        values |= file[title].read(world, names)
    for title, field in world.tables.items():
        values |= _table(world, title, field, document)
    if "hardware" in file:
        changes = file["hardware"].read(Hardware, [one.name for one in fields(Hardware)])
        values["hardware"] = replace(world().hardware, **changes)  # type: ignore[attr-defined]
    if seed is not None:
        values["seed"] = seed
    _check_run(world, run, values)
    try:
        variants = world.variants(values, file)
    except ScenarioError as problem:
        raise ScenarioError(_with_path(str(problem), world)) from None
    where = "--policies" if policies else "run.policies"
    chosen = _known_policies(policies or run.get("policies", tuple[str, ...], world.policies), where, world)
    for variant, scenario in variants.items():
        if not scenario.decides and "static" not in chosen:
            raise ScenarioError(f"{where}: in a {variant} there is nothing to decide: it is simulated with static only")
    return Comparison(variants, chosen, top.get("about", str, ""))


def _world(name: object) -> type[Scenario]:
    if not isinstance(name, str) or name not in WORLDS:
        raise ScenarioError(f"world: there is no world {name!r}; {meant(str(name), list(WORLDS))}")
    return WORLDS[name]


def _sections(world: type[Scenario], document: Mapping[str, object]) -> dict[str, Section]:
    """The sections by their titles, that of the whole file by none."""
    keys = {title: (*names, *world.own_keys.get(title, ())) for title, names in world.sections.items()}
    keys["run"] = (*keys["run"], "policies")
    if "hardware" in hints_of(world):
        keys["hardware"] = tuple(field.name for field in fields(Hardware))
    tables = (*world.tables, *(title for title in world.own_keys if title not in keys))
    top = Section("", document, ("world", "name", "about", *keys, *tables))
    return {"": top, **{title: Section(title, document.get(title, {}), names) for title, names in keys.items()}}


def _table(world: type[Scenario], title: str, field: str, document: Mapping[str, object]) -> dict[str, Any]:
    if title not in document:
        return {}
    entry = get_args(hints_of(world)[field])[0]
    names = [one.name for one in fields(entry)]
    return {field: tuple(entry(**one.read(entry, names)) for one in sections(title, document[title], names))}


def _check_run(world: type[Scenario], run: Section, values: dict[str, Any]) -> None:
    """Intervals are whole parts of the run, or the last would look low, and statistics are there before its end."""
    defaults = {field.name: field.default for field in fields(world)}
    length = values.get("seconds", defaults["seconds"])
    if "interval" in defaults and "interval" not in run:
        values["interval"] = length / max(20, round(length / defaults["interval"]))
    elif "interval" in defaults:
        interval = run.get("interval", Seconds, 0.0)
        parts = length / interval
        if parts < 4 - 1e-9:
            raise run.refuses("interval", f"{interval:g} seconds leave fewer than four intervals in {length:g} seconds")
        if parts > MOST_INTERVALS:
            raise run.refuses("interval", f"{interval:g} seconds would make {parts:,.0f} intervals")
        if abs(parts - round(parts)) > 1e-6:
            problem = f"{length:g} seconds are no whole number of intervals of {interval:g} seconds"
            raise run.refuses("interval", problem)
    if values.get("minimum_collection", 0.0) >= length:
        raise run.refuses("minimum-collection", "it is as long as the run: nothing would ever be decided")


def _with_path(message: str, world: type[Scenario]) -> str:
    """What a scenario says of one of its fields, by the path of the key."""
    paths = {name: f"{title}.{name}" for title, names in world.sections.items() for name in names}
    paths |= {field: title for title, field in world.tables.items()}
    field, path, rest = re.match(r"(\w*)([^:]*)(.*)", message, re.DOTALL).groups()  # type: ignore[union-attr]
    return f"{(paths[field] + path).replace('_', '-')}{rest}" if field in paths else message


def _known_policies(names: Sequence[str], where: str, world: type[Scenario]) -> tuple[str, ...]:
    """The names, if each is a policy's that can be simulated in this world and none is there twice."""
    for name in names:
        try:
            chosen = policy(name)
        except FlowError as problem:
            raise ScenarioError(f"{where}: {problem}") from None
        if chosen.freezing is not None and not world.freezes:
            able = ", ".join(title for title, other in WORLDS.items() if other.freezes)
            raise ScenarioError(f"{where}: {name} freezes the state of joins; of the worlds there are, {able} has any")
        if list(names).count(name) > 1:
            raise ScenarioError(f"{where}: {name} is listed twice")
    return tuple(names)
