"""A scenario as a TOML file: the cluster, the workload, what goes wrong, and which policies are compared.

`docs/simulator.md` has every key. What a file does not say is as in the Flux paper.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sluice.model.errors import FlowError, ScenarioError
from sluice.policies import policy
from sluice.sim.disturbance import MOST, Disturbances
from sluice.sim.hardware import Hardware
from sluice.sim.scenario import EXCHANGES, Drift, Scenario
from sluice.sim.toml_table import Section, duration, meant
from sluice.sim.workload import SKEWS, UNIFORM, ZIPF, Skew

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TOP = ("name", "about", "cluster", "workload", "run", "hardware", "load", "pressure")
CLUSTER = ("sites", "units-per-site", "unit-size", "memory", "exchange", "buffer", "load-on", "load-off")
WORKLOAD = ("groups", "skew", "amount", "drift-every", "drift-at")
RUN = ("seconds", "policies", "seed", "interval", "minimum-collection")
TIMES = ("process", "process-spread", "produce", "spool", "handle-state", "switch", "latency", "seek", "seek-spread")
RATES = ("disk-rate", "link-rate", "cross-rate")
COUNTS = ("packet-tuples", "queue-packets")
FLAGS = ("full-packets",)
SIZES = ("tuple-bytes", "memory", "spool-buffer")
HARDWARE = (*TIMES, *RATES, *COUNTS, *FLAGS, *SIZES)
POLICIES = ("static", "hybrid")
"""What is compared unless the file says otherwise."""


@dataclass(frozen=True)
class Trial:
    """One simulation of a comparison."""

    label: str
    scenario: Scenario
    policy: str


@dataclass(frozen=True)
class Comparison:
    """A scenario and what is compared in it; without `exchanges` only the scenario's own."""

    scenario: Scenario
    policies: tuple[str, ...] = POLICIES
    exchanges: tuple[str, ...] = ()
    about: str = ""

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Every policy under every exchange; but a river sends any tuple anywhere, so there is nothing to move."""
        several = len(self.exchanges) > 1
        return tuple(
            Trial(f"{exchange}, {name}" if several else name, replace(self.scenario, exchange=exchange), name)
            for exchange in self.exchanges or (self.scenario.exchange,)
            for name in self.policies
            if exchange != "river" or name == "static"
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
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise ScenarioError(f"{path} is not a TOML file: {problem}") from None
    return comparison(given, Path(path).stem, policies=policies, seed=seed)


def comparison(
    given: dict[str, object], name: str = "scenario", *, policies: Sequence[str] = (), seed: int | None = None
) -> Comparison:
    """What a file says, as read from its TOML; `name` is for a file that has none."""
    top = Section("", given, TOP)
    cluster = Section("cluster", given.get("cluster", {}), CLUSTER)
    workload = Section("workload", given.get("workload", {}), WORKLOAD)
    run = Section("run", given.get("run", {}), RUN)
    hardware = _hardware(Section("hardware", given.get("hardware", {}), HARDWARE), cluster)

    known = Scenario()
    seconds = _seconds(run, known.seconds)
    seed = run.count("seed", known.seed, least=0) if seed is None else seed
    sites = cluster.count("sites", known.sites)
    exchanges = _exchanges(cluster)
    skew = _skew(workload)
    what = Disturbances(seconds, sites, hardware.memory, seed)
    scenario = Scenario(
        name=top.text("name", name),
        seconds=seconds,
        sites=sites,
        units_per_site=cluster.count("units-per-site", known.units_per_site),
        unit_bytes=cluster.size("unit-size", known.unit_bytes),
        groups=workload.count("groups", known.groups),
        skew=skew,
        exchange=exchanges[0],
        buffer=_buffer(cluster, exchanges),
        loads=what.loads(given.get("load", [])),
        load_on=cluster.duration("load-on", known.load_on, positive=True),
        load_off=cluster.duration("load-off", known.load_off, positive=True),
        pressures=what.pressures(given.get("pressure", [])),
        drifts=_drifts(workload, skew, seconds),
        minimum_collection=_minimum_collection(run, seconds, known.minimum_collection),
        interval=_interval(run, seconds),
        seed=seed,
        hardware=hardware,
    )
    chosen = known_policies(policies or run.texts("policies", POLICIES), "--policies" if policies else "run.policies")
    if "river" in exchanges and "static" not in chosen:
        raise cluster.refuses(
            "exchange", "in a river there is nothing to move: it is simulated with policy static only"
        )
    return Comparison(scenario, chosen, exchanges, top.text("about", "") if "about" in top else "")


def known_policies(names: Sequence[str], where: str) -> tuple[str, ...]:
    """The names, if each is a policy's and none is there twice."""
    for name in names:
        try:
            chosen = policy(name)
        except FlowError as problem:
            raise ScenarioError(f"{where}: {problem}") from None
        if chosen.freezing is not None:
            told = "units of a scenario file have no join to freeze; sluice figures lazy-disk simulates one"
            raise ScenarioError(f"{where}: {name} freezes the state of joins, and {told}")
        if list(names).count(name) > 1:
            raise ScenarioError(f"{where}: {name} is listed twice")
    return tuple(names)


def _hardware(given: Section, cluster: Section) -> Hardware:
    """A field of `Hardware` a key, with hyphens; a site's memory may be told with the cluster."""
    if "memory" in given and "memory" in cluster:
        raise given.refuses("memory", "this is in [cluster] too; say it once")
    known = Hardware()
    found: dict[str, Any] = {"memory": cluster.size("memory", known.memory)}
    for key in given.given:
        field = key.replace("-", "_")
        default = getattr(known, field)
        if key in TIMES:
            found[field] = given.duration(key, default, positive=key == "process")
        elif key in RATES:
            found[field] = given.rate(key, default)
        elif key in COUNTS:
            found[field] = given.count(key, default)
        elif key in FLAGS:
            found[field] = given.flag(key, default)
        else:
            found[field] = given.size(key, default)
    return replace(known, **found)


def _seconds(run: Section, default: float) -> float:
    """The one duration that is a number too: its key has the unit."""
    if isinstance(run.given.get("seconds"), str):
        return run.duration("seconds", default, positive=True)
    return run.number("seconds", default, above=0, below=1e6)


def _interval(run: Section, seconds: float) -> float:
    """One second unless given, or a twentieth of a short run; always a whole part of it, or the last would look low."""
    if "interval" not in run:
        return seconds / max(20, round(seconds))
    found = run.duration("interval", 0.0, positive=True)
    parts = seconds / found
    if parts < 4 - 1e-9:
        raise run.refuses("interval", f"{found:g} seconds leave fewer than four intervals in {seconds:g} seconds")
    if parts > MOST:
        raise run.refuses("interval", f"{found:g} seconds would make {parts:,.0f} intervals")
    if abs(parts - round(parts)) > 1e-6:
        raise run.refuses("interval", f"{seconds:g} seconds are no whole number of intervals of {found:g} seconds")
    return found


def _minimum_collection(run: Section, seconds: float, default: float) -> float:
    found = run.duration("minimum-collection", default, positive=True)
    if found >= seconds and "minimum-collection" in run:
        raise run.refuses("minimum-collection", "it is as long as the run: nothing would ever be decided")
    return found


def _exchanges(cluster: Section) -> tuple[str, ...]:
    found = cluster.texts("exchange", ("flux",))
    for name in found:
        if name not in EXCHANGES:
            raise cluster.refuses("exchange", f"there is no exchange {name!r}; {meant(name, list(EXCHANGES))}")
        if found.count(name) > 1:
            raise cluster.refuses("exchange", f"{name} is listed twice")
    return found


def _buffer(cluster: Section, exchanges: Sequence[str]) -> int:
    found = cluster.count("buffer", Scenario().buffer, least=0)
    if found == 0 and "flux" in exchanges:
        raise cluster.refuses(
            "buffer", 'flux passes every tuple through its buffer; give it room, or exchange = "exchange"'
        )
    return found


def _skew(workload: Section) -> Skew:
    kind = workload.text("skew", UNIFORM)
    if kind not in SKEWS:
        raise workload.refuses("skew", f"there is no skew {kind!r}; {meant(kind, SKEWS)}")
    if kind == UNIFORM:
        if "amount" in workload:
            raise workload.refuses("amount", "a uniform workload has none; give a skew too")
        return Skew()
    above, below, default = (0.0, 10.0, 1.0) if kind == ZIPF else (0.5, 1.0, 0.8)
    return Skew(kind, workload.number("amount", default, above, below))


def _drifts(workload: Section, skew: Skew, seconds: float) -> tuple[Drift, ...]:
    if "drift-every" in workload and "drift-at" in workload:
        raise workload.refuses("drift-at", "give this or drift-every, not both")
    for key in ("drift-every", "drift-at"):
        if key in workload and skew.kind == UNIFORM:
            raise workload.refuses(key, "in a uniform workload no group is more popular than another; give a skew")
    if "drift-every" in workload:
        every = workload.duration("drift-every", seconds, positive=True)
        if seconds / every > MOST:
            raise workload.refuses("drift-every", f"the workload would change {seconds / every:,.0f} times")
        times = [every * number for number in range(1, math.ceil(seconds / every - 1e-9))]
    else:
        given = workload.given.get("drift-at", [])
        times = [duration(one, "workload.drift-at") for one in (given if isinstance(given, list) else [given])]
    for time in times:
        if not 0 < time < seconds:
            raise workload.refuses("drift-at", f"{time:g} seconds is not inside the run of {seconds:g} seconds")
    return tuple(Drift(time) for time in sorted(set(times)))
