"""`sluice simulate`: scenario files and every mistake they can hold, tiny clusters run to the end, the ready ones."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree

import numpy as np
import pytest
from screens import pictures

import sluice.sim.worlds.flux
from sluice.cli import simulate as command
from sluice.cli.main import main
from sluice.model.errors import ScenarioError, SluiceError
from sluice.policies import policy
from sluice.sim.hardware import Hardware
from sluice.sim.notation import hints_of
from sluice.sim.scenario_file import Comparison, read_scenarios
from sluice.sim.worlds import WORLDS
from sluice.sim.worlds.flux.scenario import FluxScenario, Load, Pressure, merged
from sluice.sim.worlds.flux.workload import Skew

PAGE = Path(__file__).parents[2] / "docs" / "research" / "simulator.md"
READY = ("memory-short", "mixed", "rotating-load", "skew-drift", "slow-site")
FILES = ("outcome.json", "throughput.svg", "latency.svg", "decisions.csv")
TINY = """
name = "Tiny one"
about = "a slow site"

[cluster]
sites = 4
units-per-site = 8
unit-size = "8 KB"
buffer = 64

[run]
seconds = 0.2
policies = ["static", "load"]

[[load]]
sites = [1]
start = "20 ms"
"""
MOVING = re.compile(r"^ +\d+\.\d{3} s  unit \d+ from site \d to \d: site \d is \d+ % busy, ", re.MULTILINE)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scenario file in the current directory."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "tiny.toml"
    file.write_text(TINY)
    return file


def read(tmp_path: Path, text: str) -> Comparison:
    file = tmp_path / "given.toml"
    file.write_text(text)
    return read_scenarios(file)


# --- what a file says -----------------------------------------------------------------------------------------------


def test_an_empty_file_is_the_papers_baseline(tmp_path: Path) -> None:
    found = read(tmp_path, "")
    assert found == Comparison({"flux": FluxScenario(name="given")}, ("static", "hybrid"))


def test_every_section_is_read(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        """
        name = "all of it"
        about = "everything at once"
        [cluster]
        sites = 8
        units-per-site = 16
        unit-size = "1.5 MB"
        memory = "64 MiB"
        exchange = ["flux", "exchange", "river"]
        buffer = 512
        load-on = "1 ms"
        load-off = "2 ms"
        [workload]
        groups = 1000
        skew = "zipf"
        amount = 1.2
        drift-at = ["9 seconds", "4 s"]
        [run]
        seconds = "1 minute"
        policies = ["memory", "static"]
        seed = 7
        interval = "500 ms"
        minimum-collection = "0.25 seconds"
        [hardware]
        process = "30 us"
        produce = "0.25 us"
        disk-rate = "100 MB/s"
        link-rate = "1 Gbit/s"
        packet-tuples = 20
        spool-buffer = "128 KiB"
        tuple-bytes = 100
        [[load]]
        sites = [3, 1]
        start = "5 seconds"
        end = "10 seconds"
        [[pressure]]
        sites = "all"
        size = "32 MiB"
        end = "30 seconds"
        """,
    )
    hardware = Hardware(
        process=30e-6,
        produce=0.25e-6,
        disk_rate=1e8,
        link_rate=1.25e8,
        packet_tuples=20,
        spool_buffer=128 << 10,
        tuple_bytes=100,
        memory=64 << 20,
    )
    scenario = FluxScenario(
        name="all of it",
        seconds=60.0,
        sites=8,
        units_per_site=16,
        unit_size=1_500_000,
        groups=1000,
        skew=Skew("zipf", 1.2),
        exchange="flux",
        buffer=512,
        loads=(Load(3, 5.0, 10.0), Load(1, 5.0, 10.0)),
        load_on=1e-3,
        load_off=2e-3,
        pressures=tuple(Pressure(site, 32 << 20, 0.0, 30.0) for site in range(8)),
        drifts=(4.0, 9.0),
        minimum_collection=0.25,
        interval=0.5,
        seed=7,
        hardware=hardware,
    )
    variants = {name: replace(scenario, exchange=name) for name in ("flux", "exchange", "river")}
    assert found == Comparison(variants, ("memory", "static"), about="everything at once")


def test_every_policy_runs_under_every_exchange_but_a_river_has_nothing_to_move(tmp_path: Path) -> None:
    found = read(tmp_path, '[cluster]\nexchange = ["flux", "exchange", "river"]')
    assert [(t.label, t.scenario.exchange, t.policy) for t in found.trials] == [
        ("flux, static", "flux", "static"),
        ("flux, hybrid", "flux", "hybrid"),
        ("exchange, static", "exchange", "static"),
        ("exchange, hybrid", "exchange", "hybrid"),
        ("river, static", "river", "static"),
    ]
    assert [t.label for t in read(tmp_path, "").trials] == ["static", "hybrid"]


def test_a_rotating_load_visits_one_site_after_the_other(tmp_path: Path) -> None:
    given = '[cluster]\nsites = 3\n[run]\nseconds = 2.25\n[[load]]\nsites = "all"\nrotate = "0.5 s"\nstart = "250 ms"'
    loads = read(tmp_path, given).scenario.loads
    assert sorted((one.start, one.end, one.site) for one in loads) == [
        (0.25, 0.75, 0),
        (0.75, 1.25, 1),
        (1.25, 1.75, 2),
        (1.75, 2.25, 0),
    ]


def test_a_site_has_one_external_process_or_none(tmp_path: Path) -> None:
    first = '[[load]]\nsites = [2, 5]\nstart = "1 s"\nend = "4 s"\n'
    second = '[[load]]\nsites = [2]\nstart = "4 s"\nend = "9 s"\n[[load]]\nsites = [5]\nstart = "2 s"\nend = "3 s"\n'
    assert merged(read(tmp_path, first + second).scenario.loads) == (Load(2, 1.0, 9.0), Load(5, 1.0, 4.0))


def test_counted_sites_are_drawn_by_the_seed_and_the_same_for_load_and_pressure(tmp_path: Path) -> None:
    given = '[run]\nseed = {}\n[[load]]\ncount = 8\n[[pressure]]\ncount = 8\nsize = "1 MB"\n[[load]]\ncount = 2'
    drawn = {}
    for seed in (1, 2):
        scenario = read(tmp_path, given.format(seed)).scenario
        drawn[seed] = {one.site for one in scenario.loads}
        assert len(drawn[seed]) == 8 and drawn[seed] == {one.site for one in scenario.pressures}
        assert read(tmp_path, given.format(seed)).scenario == scenario
    assert drawn[1] != drawn[2]
    file = tmp_path / "given.toml"
    assert {one.site for one in read_scenarios(file, seed=1).scenario.loads} == drawn[1]


def test_drifts_stay_inside_the_run(tmp_path: Path) -> None:
    given = '[run]\nseconds = 30\n[workload]\nskew = "80/20"\ndrift-every = "10 seconds"'
    assert read(tmp_path, given).scenario.drifts == (10.0, 20.0)


@pytest.mark.parametrize(("seconds", "interval"), [(60, 1.0), (20, 1.0), (10, 0.5), (0.2, 0.01), (30.5, 30.5 / 30)])
def test_intervals_are_whole_parts_of_the_run(tmp_path: Path, seconds: float, interval: float) -> None:
    assert read(tmp_path, f"[run]\nseconds = {seconds}").scenario.interval == pytest.approx(interval)


def test_memory_that_one_gives_back_is_there_for_another(tmp_path: Path) -> None:
    later = '[[pressure]]\nsites = [0]\nsize = "1 GB"\nstart = "5 s"\n'
    sooner = '[[pressure]]\nsites = [0]\nsize = "1 GB"\nend = "5 s"\n'
    assert [one.start for one in read(tmp_path, later + sooner).scenario.pressures] == [0.0, 5.0]


def test_packets_can_be_told_to_be_full(tmp_path: Path) -> None:
    assert read(tmp_path, "[hardware]\nfull-packets = true").scenario.hardware.full_packets


# --- what a file cannot say -----------------------------------------------------------------------------------------

CLUSTER, RUN, WORK, HARD = "[cluster]\n", "[run]\n", "[workload]\n", "[hardware]\n"
LOAD, PRESSURE = "[[load]]\nsites = [1]\n", '[[pressure]]\nsites = [1]\nsize = "1 MB"\n'
MISTAKES = {
    "clutser = 1": "clutser: there is no such key; did you mean cluster?",
    "[hardware]\nfull-packets = 1": "hardware.full-packets: this must be true or false, not 1",
    "cluster = 4": "cluster: this is a section, written [cluster], not 4",
    "zebra = 1": "zebra: there is no such key; known: world, name, about, cluster, workload, run, ",
    "name = 3": "name: this must be a text, not 3",
    CLUSTER + "sites = 0": "cluster.sites: this must be above 0, not 0",
    CLUSTER + "sites = -4": "cluster.sites: this must be above 0, not -4",
    CLUSTER + "sites = 4.5": "cluster.sites: this must be a whole number, not 4.5",
    CLUSTER + "sites = true": "cluster.sites: this must be a whole number, not True",
    CLUSTER + "unit_size = 1": "cluster.unit_size: there is no such key; did you mean unit-size",
    CLUSTER + 'unit-size = "800 K"': "cluster.unit-size: '800 K' is not a size; write for example '800 KB' or '1 GiB'",
    CLUSTER + 'unit-size = "5 Mbit"': "cluster.unit-size: '5 Mbit' is not a size",
    CLUSTER + 'unit-size = "0 KB"': "cluster.unit-size: this must be above 0, not '0 KB'",
    CLUSTER + "unit-size = -1": "cluster.unit-size: this must be above 0, not -1",
    CLUSTER + 'memory = "1 GB/s"': "cluster.memory: '1 GB/s' is not a size",
    CLUSTER + 'exchange = "fluks"': "cluster.exchange: there is no exchange 'fluks'; did you mean flux?",
    CLUSTER + "exchange = []": "cluster.exchange: this must be one or several, not []",
    CLUSTER + 'exchange = ["flux", "flux"]': "cluster.exchange: flux is listed twice",
    CLUSTER + "buffer = 0": "cluster.buffer: flux passes every tuple through its buffer",
    CLUSTER + 'exchange = "river"\n[run]\npolicies = ["load"]': "run.policies: in a river there is nothing to decide",
    CLUSTER + 'load-on = "0 us"': "cluster.load-on: this must be above 0, not '0 us'",
    WORK + 'skew = "zip"': "workload.skew: there is no skew 'zip'; did you mean zipf?",
    WORK
    + 'skew = "linear"': "workload.skew: there is no skew 'linear'; known: uniform, 80/20, two-level, zipf, b-model",
    WORK + 'skew = "80/20"\namount = 1.5': "workload.amount: this must be above 0.5 and below 1, not 1.5",
    WORK + 'skew = "zipf"\namount = "much"': "workload.amount: this must be a number, not 'much'",
    WORK + "amount = 0.8": "workload.amount: a uniform workload has none",
    WORK + "groups = 0": "workload.groups: this must be above 0",
    WORK + 'drift-every = "1 s"': "workload.drift-every: in a uniform workload no group is more popular than another",
    WORK + 'skew = "zipf"\ndrift-every = "1 us"': "workload.drift-every: the workload would change 60,000,000 times",
    WORK + 'skew = "zipf"\ndrift-every = "1 s"\ndrift-at = "2 s"': "workload.drift-at: give this or drift-every",
    WORK
    + 'skew = "zipf"\ndrift-at = ["2 minutes"]': "workload.drift-at: 120 seconds is not inside the run of 60 seconds",
    WORK + 'skew = "zipf"\ndrift-at = [5]': "workload.drift-at: 5 is a duration without its unit; write for example",
    RUN + "seconds = 0": "run.seconds: this must be above 0",
    RUN + "seconds = -1": "run.seconds: this must be above 0",
    RUN + "seconds = inf": "run.seconds: this must be above 0 and below 1e+06, not inf",
    RUN + 'seconds = "soon"': "run.seconds: this is not a duration: 'soon'",
    RUN + 'seconds = "-5 s"': "run.seconds: this must not be negative: '-5 s'",
    RUN + 'policies = ["magic"]': "run.policies: there is no policy 'magic'; known: active-disk, elastic, hybrid",
    '[run]\npolicies = ["lazy-disk"]': "run.policies: lazy-disk freezes the state of joins; of the worlds",
    RUN + "policies = []": "run.policies: this must be one or several, not []",
    RUN + 'policies = ["load", "load"]': "run.policies: load is listed twice",
    RUN + "seed = -1": "run.seed: this must be at least 0, not -1",
    RUN + 'interval = "7 seconds"': "run.interval: 60 seconds are no whole number of intervals of 7 seconds",
    RUN + 'interval = "30 seconds"': "run.interval: 30 seconds leave fewer than four intervals",
    RUN + 'interval = "1 us"': "run.interval: 1e-06 seconds would make 60,000,000 intervals",
    RUN + "interval = 1": 'run.interval: 1 is a duration without its unit; write for example "1 seconds"',
    RUN + 'minimum-collection = "0 s"': "run.minimum-collection: this must be above 0, not '0 s'",
    RUN + 'minimum-collection = "2 minutes"': "run.minimum-collection: it is as long as the run",
    HARD + 'proces = "45 us"': "hardware.proces: there is no such key; did you mean process",
    HARD + "process = 45": "hardware.process: 45 is a duration without its unit",
    HARD + 'process = "0 us"': "hardware.process: this must be above 0, not '0 us'",
    HARD
    + 'disk-rate = "20 MB"': "hardware.disk-rate: '20 MB' is not a rate; write for example '20 MB/s' or '250 Mbit/s'",
    HARD + 'disk-rate = "0 MB/s"': "hardware.disk-rate: this must be above 0, not '0 MB/s'",
    HARD + "packet-tuples = 0": "hardware.packet-tuples: this must be above 0",
    HARD + 'memory = "1 GB"\n[cluster]\nmemory = "1 GB"': "hardware.memory: this is in [cluster] too; say it once",
    "[load]\nsites = [1]": "load: there can be several, so it is written [[load]], in double brackets",
    "[[load]]": 'load[0].sites: say where: sites = [3, 5], sites = "all" or count = 8; one of them',
    LOAD + "count = 2": "load[0].sites: say where",
    LOAD * 2 + "[[load]]\nsites = [40]": "load[2].sites: there is no site 40; the cluster has 32, numbered from 0",
    "[[load]]\nsites = [-1]": "load[0].sites: there is no site -1",
    "[[load]]\nsites = [2, 2]": "load[0].sites: site 2 is listed twice",
    "[[load]]\nsites = 3": 'load[0].sites: write a list of numbers such as [3, 5], or "all", not 3',
    "[[load]]\nsites = []": "load[0].sites: write a list of numbers",
    '[[load]]\nsites = "some"': "load[0].sites: write a list of numbers",
    "[[load]]\ncount = 33": "load[0].count: the cluster has only 32 sites",
    "[[load]]\ncount = 0": "load[0].count: this must be above 0",
    LOAD + 'start = "60 s"': "load[0].start: 60 seconds is not before the end of the run, 60 seconds",
    LOAD + 'start = "5 s"\nend = "5 s"': "load[0].end: 5 seconds is not after the start, 5 seconds",
    LOAD + 'rotate = "1 us"': "load[0].rotate: the load would change its site 60,000,000 times",
    LOAD + 'size = "1 MB"': "load[0].size: there is no such key",
    "[[pressure]]\nsites = [1]": "pressure[0].size: say how much memory is taken",
    PRESSURE.replace("1 MB", "2 GB"): "pressure[0].size: 2 GB cannot be taken of a site's 1024 MB",
    PRESSURE.replace("1 MB", "600 MB")
    * 2: "pressure[1].size: together with entries above it 1200 MB of site 1's 1024 MB",
    PRESSURE + 'rotate = "1 s"': "pressure[0].rotate: there is no such key",
}


@pytest.mark.parametrize(("text", "message"), MISTAKES.items(), ids=[m.split(":")[0] for m in MISTAKES.values()])
def test_a_mistake_is_named_by_its_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as problem:
        read(tmp_path, text)
    assert str(problem.value).startswith(message)


def test_an_exchange_needs_no_buffer(tmp_path: Path) -> None:
    assert read(tmp_path, '[cluster]\nexchange = "exchange"\nbuffer = 0').scenario.buffer == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[cluster\n", "is not a TOML file: "),
        (b"\xff\xfe", "it is not text in UTF-8"),
        (None, "there is no file"),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, content: bytes | None, message: str) -> None:
    file = tmp_path / "given.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ScenarioError, match=re.escape(message)):
        read_scenarios(file)
    with pytest.raises(ScenarioError, match="cannot read"):
        read_scenarios(tmp_path)


# --- the command ----------------------------------------------------------------------------------------------------


def test_a_tiny_cluster_from_file_to_charts(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "tiny.toml"]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[:2] == ["Tiny one: 4 sites, 8 units of 8 KB each, 0.2 seconds, seed 1", "a slow site"]
    assert lines[3].split("  ")[0] == "policy" and lines[4].startswith("static") and lines[5].startswith("load")
    assert MOVING.search(out) and "more (--decisions shows all)" not in out
    assert lines[-1] == "simulated-tiny-one: throughput.svg, latency.svg, decisions.csv, outcome.json"
    assert "static (1 of 2): 0.2 simulated seconds" in err and "load (2 of 2)" in err

    home = Path("simulated-tiny-one")
    for name in ("throughput.svg", "latency.svg"):
        text = (home / name).read_text()
        ElementTree.fromstring(text)
        assert "static" in text and "load" in text and "Tiny one" in text
    told = json.loads((home / "outcome.json").read_text())
    static, load = told["runs"]
    assert len(static["times"]) == len(static["throughput"]) == len(load["latency"]) == 20
    assert load["meanThroughput"] > static["meanThroughput"] > 0
    assert static["moves"] == 0 < load["moves"]
    assert told["scenario"]["loads"] == [{"site": 1, "start": 0.02, "end": None}]
    with open(home / "decisions.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["run"] for row in rows} == {"load"} and sum(bool(row["done"]) for row in rows) == load["moves"]
    assert all(float(row["done"]) > float(row["time"]) for row in rows if row["done"])


def test_a_seed_gives_the_same_files(tiny: Path) -> None:
    for out, seed in (("a", "5"), ("b", "5"), ("c", "6")):
        assert main(["simulate", "tiny.toml", "--seed", seed, "--out", out]) == 0
    for name in FILES:
        assert Path("a", name).read_bytes() == Path("b", name).read_bytes()
    assert Path("a", "decisions.csv").read_bytes() != Path("c", "decisions.csv").read_bytes()


def test_watching_a_simulation_changes_nothing(tiny: Path) -> None:
    from sluice.sim.simulation import simulate

    assert main(["simulate", "tiny.toml", "--policies", "hybrid"]) == 0
    (seen,) = json.loads(Path("simulated-tiny-one", "outcome.json").read_text())["runs"]
    alone = simulate(read_scenarios(tiny).scenario, policy("hybrid"))
    np.testing.assert_array_equal(seen["throughput"], alone.throughput)
    np.testing.assert_array_equal(seen["unitSite"], alone.unit_sites)


def test_a_terminal_shows_how_far_it_has_come(tiny: Path) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    assert command.simulate(command.Wanted("tiny.toml", policies=("static",)), terminal) == 0
    seen = [picture.strip() for picture in pictures(terminal.getvalue())]
    assert "static (1 of 1): 0 of 0.2 simulated seconds" in seen
    assert "static (1 of 1): 0.1 of 0.2 simulated seconds" in seen
    assert seen[-1].startswith("static (1 of 1): 0.2 simulated seconds in ")


def test_an_interrupted_simulation_writes_nothing(
    tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command.Simulation, "run", interrupt)
    assert main(["simulate", "tiny.toml"]) == 1
    assert "sluice: interrupted" in capsys.readouterr().err and not Path("simulated-tiny-one").exists()


def test_exchanges_side_by_side(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny.write_text(TINY.replace("[cluster]", '[cluster]\nexchange = ["flux", "exchange", "river"]'))
    assert main(["simulate", "tiny.toml", "--policies", "static"]) == 0
    out, _ = capsys.readouterr()
    assert re.findall(r"^(\w+), static  ", out, re.MULTILINE) == ["flux", "exchange", "river"]


def test_memory_taken_and_given_back(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pressed = '[[pressure]]\nsites = [2]\nsize = "80 KB"\nstart = "20 ms"\n'
    tiny.write_text(TINY.replace("buffer", 'memory = "100 KB"\nbuffer') + pressed)
    assert main(["simulate", "tiny.toml", "--policies", "static,hybrid"]) == 0
    static, hybrid = capsys.readouterr().out.splitlines()[4:6]
    assert int(static.split()[-1]) > 0 and int(hybrid.split()[-1]) < int(static.split()[-1])
    tiny.write_text(tiny.read_text() + 'end = "60 ms"\n')
    assert main(["simulate", "tiny.toml", "--policies", "static"]) == 0
    assert int(capsys.readouterr().out.splitlines()[4].split()[-1]) == 0


def test_all_decisions_or_the_first(
    tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice.cli.outcome_text.SHOWN", 2)
    assert main(["simulate", "tiny.toml"]) == 0
    first = capsys.readouterr().out
    assert main(["simulate", "tiny.toml", "--decisions"]) == 0
    every = capsys.readouterr().out
    count = len(MOVING.findall(every))
    assert len(MOVING.findall(first)) == 2 and f"  … and {count - 2} more (--decisions shows all)" in first


def test_foreign_files_are_left_alone(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine").mkdir()
    Path("mine", "latency.svg").write_text("mine")
    assert main(["simulate", "tiny.toml", "--out", "mine"]) == 2
    out, err = capsys.readouterr()
    assert "mine has a latency.svg that no simulation wrote" in err and not out and "simulated seconds" not in err
    assert Path("mine", "latency.svg").read_text() == "mine"
    assert main(["simulate", "tiny.toml", "--out", "tiny.toml"]) == 2

    Path("ours").mkdir()
    Path("ours", "notes.txt").write_text("mine")
    for _ in range(2):
        assert main(["simulate", "tiny.toml", "--policies", "static", "--out", "ours"]) == 0
    assert sorted(path.name for path in Path("ours").iterdir()) == sorted([*FILES, "notes.txt"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say what to simulate: a TOML file, or one of memory-short, mixed"),
        (["nothing"], "there is no file nothing and no ready scenario of that name; ready: memory-short, mixed"),
        (["nothing.toml"], "there is no file nothing.toml"),
        (["--show", "nothing"], "no ready scenario of that name"),
        (["tiny.toml", "--policies", "static,magic"], "--policies: there is no policy 'magic'; known: active-disk"),
    ],
)
def test_what_cannot_be_done(
    tiny: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["simulate", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_without_numba_it_says_what_to_install(
    tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    for name in ("world", "site", "core"):
        monkeypatch.delitem(sys.modules, f"sluice.sim.worlds.flux.{name}", raising=False)
        monkeypatch.delattr(sluice.sim.worlds.flux, name, raising=False)
    assert main(["simulate", "tiny.toml"]) == 2
    assert (
        "sluice: sluice simulate needs the package numba: pip install 'sluice-streaming[sim]'"
        in capsys.readouterr().err
    )
    assert main(["simulate", "--list"]) == 0
    assert not Path("simulated-tiny-one").exists()


# --- the ready scenarios and the page -------------------------------------------------------------------------------


def test_the_list_has_every_ready_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert tuple(line.split()[0] for line in lines) == READY
    assert all(len(line.split()) > 4 for line in lines)


@pytest.mark.parametrize("name", READY)
def test_a_ready_scenario_can_be_copied(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--show", name]) == 0
    copy = tmp_path / f"{name}.toml"
    copy.write_text(capsys.readouterr().out)
    found = read_scenarios(copy)
    assert found == command.read(name) and found.scenario.name == name and found.about
    assert "#" in copy.read_text()
    cost = len(found.trials) * found.scenario.seconds * found.scenario.sites
    assert cost <= 32 * 45, "a ready scenario should take no more than about 20 seconds"


def test_a_ready_scenario_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    short = command.read("rotating-load")
    short = replace(short, variants={"flux": replace(short.scenario, seconds=0.2, interval=0.05)})
    monkeypatch.setattr(command, "read", lambda *_: short)
    assert main(["simulate", "rotating-load"]) == 0
    assert sorted(path.name for path in Path("simulated-rotating-load").iterdir()) == sorted(FILES)


def test_the_page_has_every_key() -> None:
    page = PAGE.read_text(encoding="utf-8")
    keys = {"world", "name", "about", "policies", *(field.name for field in fields(Hardware))}
    for world in WORLDS.values():
        entries = [get_args(hints_of(world)[field])[0] for field in world.tables.values()]
        named = (*world.sections.items(), *world.own_keys.items(), *((title, ()) for title in world.tables))
        keys |= {key for title, names in named for key in (title, *names)}
        keys |= {field.name for entry in entries for field in fields(entry)}
    for key in (name.replace("_", "-") for name in keys):
        listed = re.search(rf"^(?:# )?{key} = |^\[{key}\]|^\[\[{key}\]\]", page, re.MULTILINE)
        assert listed or f"`{key}`" in page, f"{key} is not told"


@pytest.mark.parametrize("world", WORLDS)
def test_the_page_lists_the_defaults_of_every_world(world: str, tmp_path: Path) -> None:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    listed = {(re.findall(r'world = "(.*)"', text) or ["flux"])[0]: text for kind, text in blocks if not kind}
    found, default = read(tmp_path, listed[world]), WORLDS[world]()
    entries = ("name", "loads", "pressures", *WORLDS[world].tables.values())
    examples = {field.name: getattr(default, field.name) for field in fields(default) if field.name in entries}
    assert rounded(asdict(replace(found.scenario, **examples))) == rounded(asdict(default))
    assert found.policies == WORLDS[world].policies


def rounded(values: dict[str, object]) -> dict[str, object]:
    """The same values, all numbers to nine digits: `45 us` and 45e-6 differ in their last bit."""
    return {
        name: rounded(value)
        if isinstance(value, dict)
        else float(f"{value:.9g}")
        if isinstance(value, float)
        else value
        for name, value in values.items()
    }


def page_examples() -> dict[str, str]:
    """The scenario files of the page, by their worlds."""
    texts = re.findall(r"```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return {(re.findall(r'world = "(.*)"', text) or ["flux"])[0]: text for text in texts if "[run]" in text}


def test_the_page_has_an_example_of_every_world(tmp_path: Path) -> None:
    assert set(page_examples()) == set(WORLDS)
    for world, text in page_examples().items():
        found = read(tmp_path, text)
        assert type(found.scenario) is WORLDS[world] and len(found.trials) > 1


@pytest.mark.parametrize("world", [name for name in WORLDS if name != "flux"])
def test_any_world_goes_from_file_to_charts(
    world: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("example.toml").write_text(page_examples()[world])
    assert main(["simulate", "example.toml"]) == 0
    out, _ = capsys.readouterr()
    rows = out.split("\n\n")[1]
    assert rows in PAGE.read_text(encoding="utf-8"), "the page shows this table"
    home = Path("simulated-example")
    told = json.loads((home / "outcome.json").read_text())
    assert [run["policy"] for run in told["runs"]] == list(WORLDS[world].policies)
    for chart in home.glob("*.svg"):
        ElementTree.parse(chart)
        assert all(len(run[chart.stem]) == len(run["times"]) for run in told["runs"])
    rows = list(csv.DictReader((home / "decisions.csv").open(newline="")))
    assert rows and {row["run"] for row in rows} == {WORLDS[world].policies[-1]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('world = "fluks"', "world: there is no world 'fluks'; did you mean flux?"),
        ("world = 3", "world: there is no world 3; known: flux, lazy-disk, placement, replication, window-joins"),
        ('world = "lazy-disk"\n[cluster]\nsites = 3', "cluster.sites: there is no such key"),
        ('world = "lazy-disk"\n[workload]\ninputs = 1', "workload.inputs: a join has at least two, not 1"),
        ('world = "lazy-disk"\n[[surge]]\nsite = 0', "surge[0].start: this has to be given"),
        ('world = "lazy-disk"\n[[surge]]\nsite = 2\nstart = "1 s"', "surge[0].site: there is no site 2; there are 1"),
        ('world = "replication"\n[[join]]\nfan-out = 2', "join[0].fan-out: a tuple of a 1:1 join has one result"),
        ('world = "replication"\njoin = 1', "join: there can be several, so it is written [[join]]"),
        ('world = "replication"\n[hardware]', "hardware: there is no such key"),
        ('world = "window-joins"\n[cluster]\nmost-sites = 2', "sites: from at least 1 to at most one a partition"),
        ('world = "window-joins"\n[[change]]\nstart = "1 s"\nrate = 0', "change[0].rate: this must be above 0"),
    ],
)
def test_a_mistake_about_a_world_is_named_by_its_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as problem:
        read(tmp_path, text)
    assert message in str(problem.value)


def test_n_to_m_joins_have_no_partner_to_wait_for(tmp_path: Path) -> None:
    text = 'world = "replication"\n[[join]]\npartner-after = "none"\nfan-out = 2'
    assert read(tmp_path, text).scenario.joins[0].partner_after is None


def test_errors_are_sluices_own() -> None:
    assert issubclass(ScenarioError, SluiceError) and issubclass(ScenarioError, ValueError)
