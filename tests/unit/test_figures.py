"""The papers' experiments: claims are judged as written, runs are shared, and what is published is complete."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks.adapt.papers import LIVE
from scripts import docs_site, reproduction_pages
from sluice.cli.main import main
from sluice.dashboard.chart import Axis, Line, chart
from sluice.figures.catalogue import EXPERIMENTS, PAPERS, UnknownFigure, find_experiments
from sluice.figures.claim import Claim, ClaimKind, at_least, at_most
from sluice.figures.comparison import changes
from sluice.figures.experiment import Experiment, Reading, Trial, effort, run_all, steady_from
from sluice.figures.publish import publish, row, summary
from sluice.policies import policy
from sluice.sim.hardware import Hardware
from sluice.sim.outcome import Outcome
from sluice.sim.simulation import simulate
from sluice.sim.worlds.flux.scenario import FluxScenario
from sluice.sim.worlds.flux.world import FluxOutcome
from sluice.sim.worlds.lazy_disk.scenario import LazyDiskScenario
from sluice.sim.worlds.lazy_disk.world import LazyDiskOutcome, SiteCleanup
from sluice.sim.worlds.placement.scenario import PlacementScenario
from sluice.sim.worlds.placement.world import PlacementOutcome
from sluice.sim.worlds.replication.scenario import BinaryJoin, ReplicationScenario
from sluice.sim.worlds.replication.world import Remiss, ReplicationOutcome
from sluice.sim.worlds.window_joins.scenario import WindowJoinScenario
from sluice.sim.worlds.window_joins.world import WindowJoinOutcome

DOCS = Path(__file__).parents[2] / "docs"
TINY = FluxScenario("tiny", 0.2, sites=2, units_per_site=2, groups=16, buffer=32, interval=0.05)
FAST = Claim("fast", "it is fast", 1.0, 0.5, 2.0, "times", "a factor of two")


def tiny_experiment() -> Experiment:
    def read(outcomes):
        line = Line("rate", outcomes["a"].times.tolist(), outcomes["a"].throughput.tolist())
        drawn = chart("Rate", Axis("seconds"), Axis("tuples/s"), [line])
        return Reading({"fast": 1.5, "slow": 0.2}, {"": drawn}, {"rate": outcomes["a"].throughput})

    slow = at_least("slow", "it is not slow", 0.5, "times", "no reason")
    return Experiment("tiny-1", "a tiny one", (FAST, slow), {"a": Trial(TINY), "b": Trial(TINY)}, read)


@pytest.mark.parametrize(
    ("measured", "held"), [(0.5, True), (2.0, True), (0.49, False), (2.1, False), (math.nan, False)]
)
def test_a_claim_holds_within_its_range_alone(measured, held):
    assert FAST.verdict(measured).held is held


def test_open_ranges_are_said_in_words():
    assert at_least("a", "", 2.0, "s", "").accepted == "at least 2 s"
    assert at_most("a", "", 2.0, "", "").accepted == "at most 2"
    assert FAST.accepted == "0.5 to 2 times"


def test_a_missed_claim_is_published_as_missed(tmp_path):
    experiment = tiny_experiment()
    outcomes = run_all(experiment.runs.values(), 1, lambda *_: None)
    assert len(outcomes) == 1  # both runs are the same
    reading = experiment.read({name: outcomes[run] for name, run in experiment.runs.items()})
    written = publish([(experiment, reading)], tmp_path / "new" / "out")
    assert [p.name for p in written] == ["tiny-1.svg", "tiny-1.json", "verdicts.md"]
    ElementTree.parse(written[0])
    verdicts = json.loads(written[1].read_text())["verdicts"]
    assert [(v["claim"], v["held"], v["measured"]) for v in verdicts] == [("fast", True, 1.5), ("slow", False, 0.2)]
    assert "| it is not slow |  | 0.2 | at least 0.5 times | **missed** |" in written[2].read_text()


def test_several_workers_find_what_one_finds():
    runs = [Trial(TINY), Trial(TINY, "load")]
    one, two = (run_all(runs, workers, lambda *_: None) for workers in (1, 2))
    for run in runs:
        assert (one[run].rate == two[run].rate).all()


def test_runs_of_both_worlds_go_together_and_settings_reach_the_policy():
    join = LazyDiskScenario(
        "tiny join", seconds=20, units=4, interval=5, hardware=Hardware(tuple_bytes=100, memory=20_000)
    )
    runs = [Trial(TINY), *(Trial(join, "no-relocation", (("push", push),)) for push in (0.2, 1.0))]
    outcomes = run_all(runs, 1, lambda *_: None)
    assert isinstance(outcomes[runs[0]], FluxOutcome)
    few, all_of_it = (outcomes[run] for run in runs[1:])
    assert isinstance(few, LazyDiskOutcome) and len(few.spills) > len(all_of_it.spills) > 0
    assert runs[1].label == "tiny join, no-relocation, push 0.2"
    np.testing.assert_array_equal(few.output, simulate(join, policy("no-relocation", push=0.2)).output)


def test_a_plans_runs_go_with_the_others():
    plan = ReplicationScenario("tiny plan", joins=(BinaryJoin(10.0, 2.0),) * 2, seconds=60, sites=2, memory=2_000_000)
    runs = [Trial(plan), Trial(plan, "tokens", (("high", 0.8),))]
    outcomes = run_all(runs, 1, lambda *_: None)
    assert all(isinstance(one, ReplicationOutcome) and one.total > 0 for one in outcomes.values())
    assert runs[1].label == "tiny plan, tokens, high 0.8"


def test_a_parallel_window_joins_runs_go_with_the_others():
    tiny = WindowJoinScenario("tiny", rate=50.0, seconds=20.0, measured_from=10.0, window=10.0, partitions=4, sites=2)
    runs = [Trial(tiny), Trial(tiny, "elastic", (("hot", 0.5), ("even", False)))]
    outcomes = run_all(runs, 1, lambda *_: None)
    assert all(isinstance(one, WindowJoinOutcome) and one.results > 0 for one in outcomes.values())
    assert runs[1].label == "tiny, elastic, hot 0.5, even False"


def test_every_experiment_reads_a_value_for_each_claim_and_says_why_it_is_judged_so():
    names = [e.name for e in EXPERIMENTS]
    assert len(set(names)) == len(names)
    for experiment in EXPERIMENTS:
        assert len({c.name for c in experiment.claims}) == len(experiment.claims)
        for claim in experiment.claims:
            assert claim.low < claim.high and claim.why and claim.says
            if claim.value is not None:
                assert claim.verdict(claim.value).held, "the paper's own value must pass"
            if claim.kind is ClaimKind.DERIVED:
                assert claim.value is not None, "only a number can be worked out"
        outcomes = {name: flat_outcome(run) for name, run in experiment.runs.items()}
        reading = experiment.read(outcomes)
        assert {c.name for c in experiment.claims} == set(reading.values)
        for drawing in reading.charts.values():
            ElementTree.fromstring(drawing)


def flat_outcome(run: Trial) -> Outcome:
    """As if every site had processed the same all the time."""
    scenario, known = run.scenario, {"policy": run.policy, "scenario": run.scenario}
    if isinstance(scenario, ReplicationScenario):
        output, filled = np.full(scenario.steps, 10.0), np.full((scenario.steps, scenario.sites), 0.5)
        sent = {"input_bytes": 1e6, "sent_bytes": 2e6, "passes": 0, "holders": 4}
        return ReplicationOutcome(**known, output=output, filled=filled, remiss=Remiss(scenario.seconds, 0), **sent)
    if isinstance(scenario, PlacementScenario):
        flat = np.ones(int(scenario.seconds))
        workload, extra = np.outer(flat, np.linspace(0.4, 0.6, scenario.sites)), 1.0 + (run.policy == "placement")
        sent = {"tuple_bytes": extra * flat, "state_bytes": flat, "waiting": flat, "results": 9}
        return PlacementOutcome(**known, worst_ratio=flat, workload=workload, **sent)
    if isinstance(scenario, WindowJoinScenario):
        each, slots = np.full(scenario.most, 100.0), np.full(scenario.slots, scenario.sites)
        sites = {"site_working": each, "site_communicating": each, "site_taking_part": 3 * each}
        seen = {"sites": slots, "units": slots, "waiting": 100.0 * slots}
        return WindowJoinOutcome(**known, results=1e6, delay=1.0, **sites, **seen, redivisions=0)
    bins = round(scenario.seconds / scenario.interval)
    if isinstance(scenario, LazyDiskScenario):
        output = np.full((bins + 1, scenario.sites), 1000)
        cleanup = (SiteCleanup(0, 0, 0, 0.0),) * scenario.sites
        return LazyDiskOutcome(**known, output=output, memory=output[1:], peak=output[1:], spills=(), cleanup=cleanup)
    rate, latency = np.full((bins, scenario.sites), 1000.0), np.full(bins, 1e-4)
    owners = tuple(np.repeat(np.arange(scenario.sites), scenario.units_per_site).tolist())
    return FluxOutcome(**known, unit_sites=owners, rate=rate, latency=latency, spilled=np.zeros(len(owners), bool))


def test_figures_are_chosen_by_paper_or_by_name():
    assert [e.name for paper in PAPERS for e in find_experiments([paper])] == [e.name for e in EXPERIMENTS]
    assert all(e.name.startswith(f"{paper}-") for paper in PAPERS for e in PAPERS[paper])
    assert [e.name for e in find_experiments(["flux-7", "flux-3"])] == ["flux-7", "flux-3"]
    with pytest.raises(
        UnknownFigure,
        match="no figure 'flux-99'; known: all, flux, lazy-disk, placement, d-cape, window-joins, flux-baseline",
    ):
        find_experiments(["flux-99"])


def test_steady_is_when_the_rate_stays_up():
    outcome = simulate(TINY, policy("static"))
    assert steady_from(outcome, 0.5, 0.1) <= 0.1


def test_a_row_shows_published_and_measured():
    assert row(FAST.verdict(0.1234)) == "| it is fast | 1 | 0.123 | 0.5 to 2 times | **missed** |"


def test_a_number_that_no_paper_prints_is_marked():
    derived = at_most("few", "few", 2.0, "s", "", 1.5, ClaimKind.DERIVED)
    assert row(derived.verdict(1.0)) == "| few | 1.5 (derived) | 1 | at most 2 s | held |"
    assert derived.verdict(1.0).as_json()["kind"] == "derived"
    assert FAST.verdict(1.0).as_json()["kind"] == "published"


def test_what_is_fitted_and_holds_is_counted_apart():
    fitted = Claim("f", "f", 1.0, 0.5, 2.0, "", "", ClaimKind.FITTED)
    counts = summary([FAST.verdict(1.0), FAST.verdict(3.0), fitted.verdict(1.0), fitted.verdict(9.0)])
    assert counts.sentence == "1 of 3 claims held, 2 were missed, 1 more were fitted."
    assert counts.row == "| 1 of 3 | 2 | 1 |"


def write_tiny(directory: Path) -> tuple[Experiment, Reading]:
    experiment = tiny_experiment()
    reading = experiment.judge(run_all(experiment.runs.values(), 1, lambda *_: None))
    publish([(experiment, reading)], directory)
    return experiment, reading


def test_the_same_experiment_again_has_changed_in_nothing(tmp_path):
    assert changes([write_tiny(tmp_path)], tmp_path) == []


def test_a_claim_that_held_and_is_missed_now_is_a_change_and_so_is_the_last_digit(tmp_path):
    experiment, reading = write_tiny(tmp_path)
    rate = np.array(reading.data["rate"])
    rate[1] += 1e-9 * rate[1]
    worse = Reading({"fast": 3.0, "slow": 0.2}, reading.charts, {"rate": rate})
    lines = changes([(experiment, worse)], tmp_path)
    assert lines[:2] == ["tiny-1, fast: held before and is missed now", "tiny-1, fast, measured: was 1.5, is 3.0"]
    assert len(lines) == 3 and lines[2].startswith("tiny-1, data, rate, 1: was ")


def test_claims_that_come_or_go_and_ranges_that_move_are_changes(tmp_path):
    experiment, reading = write_tiny(tmp_path)
    wider = Claim("fast", "it is fast", 1.0, 0.1, 2.0, "times", "a factor of two")
    extra = at_least("more", "there is more", 0.0, "", "none")
    other = Experiment("tiny-1", "a tiny one", (wider, extra), experiment.runs, experiment.read)
    lines = changes([(other, Reading({**reading.values, "more": 1.0}, {}, reading.data))], tmp_path)
    assert lines == [
        'tiny-1, fast, accepted: was "0.5 to 2 times", is "0.1 to 2 times"',
        "tiny-1, slow: is gone",
        "tiny-1, more: is new",
    ]
    (tmp_path / "tiny-1.json").unlink()
    assert changes([(experiment, reading)], tmp_path) == [f"tiny-1: there is no {tmp_path / 'tiny-1.json'}"]


def test_the_command_fails_on_what_changed_and_not_on_a_recorded_miss(tmp_path, monkeypatch, capsys):
    experiment, reading = write_tiny(tmp_path / "recorded")
    monkeypatch.setattr("sluice.figures.catalogue.find_experiments", lambda names: [experiment])
    command = ["figures", "tiny-1", "--workers", "1", "--out", str(tmp_path / "out")]
    against = [*command, "--against", str(tmp_path / "recorded")]
    assert main(command) == 1  # a claim is missed
    assert main(against) == 0
    assert "0 changes against" in capsys.readouterr().out
    publish([(experiment, Reading({"fast": 1.5, "slow": 0.3}, {}, reading.data))], tmp_path / "recorded")
    assert main(against) == 1
    assert "tiny-1, slow, measured: was 0.3, is 0.2" in capsys.readouterr().out
    assert main([*command, "--against", str(tmp_path / "nowhere")]) == 2


def test_help_and_make_leave_no_paper_out(capsys):
    with pytest.raises(SystemExit):
        main(["figures", "-h"])
    shown = " ".join(capsys.readouterr().out.split())
    assert ", ".join(PAPERS) in shown
    assert find_experiments(["all"]) == list(EXPERIMENTS)
    rule = (DOCS.parent / "Makefile").read_text(encoding="utf-8").split("\nfigures:")[1].split("\n\n")[0]
    assert "sluice figures all --out figures --against docs/figures" in rule


def test_the_command_lists_figures_and_names_what_it_does_not_know(capsys, tmp_path):
    assert main(["figures", "--list"]) == 0
    listed = capsys.readouterr().out
    assert "flux-13" in listed and "lazy-disk-9" in listed
    assert main(["figures", "flux-99", "--out", str(tmp_path / "out")]) == 2
    assert "no figure 'flux-99'" in capsys.readouterr().err
    (tmp_path / "file").write_text("mine")
    assert main(["figures", "flux-7", "--out", str(tmp_path / "file")]) == 2
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("paper", PAPERS)
def test_the_page_of_a_paper_counts_what_was_measured(paper):
    research = DOCS / "research"
    page, index = (research / "reproduction" / f"{paper}.md").read_text(), (research / "reproduction.md").read_text()
    assert reproduction_pages.write_page(page, paper) == page, "run python -m scripts.reproduction_pages"
    assert reproduction_pages.write_counts(index, paper) == index, "run python -m scripts.reproduction_pages"


@pytest.mark.parametrize("paper", PAPERS)
def test_the_site_shows_every_verdict_under_the_heading_of_its_experiment(paper):
    page = docs_site.on_page_markdown((DOCS / "research" / "reproduction" / f"{paper}.md").read_text(encoding="utf-8"))
    sections = {part.split()[0].rstrip(":"): part for part in re.split(r"^##+ ", page, flags=re.MULTILINE)[1:]}
    for experiment in (*PAPERS[paper], *LIVE.get(paper, ())):
        section = sections[experiment.name.removeprefix("spark-")]
        for verdict in reproduction_pages.recorded_verdicts(experiment):
            assert row(verdict) in section
        for contender in reproduction_pages.recorded_document(experiment).get("rows", ()):
            assert f"| {' | '.join(contender)} |" in section


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_what_is_on_file_is_of_the_runs_of_now(experiment):
    recorded = reproduction_pages.recorded_document(experiment)
    assert recorded["runs"] == {name: run.label for name, run in experiment.runs.items()}


@pytest.mark.parametrize("experiment", reproduction_pages.ALL, ids=lambda experiment: experiment.name)
def test_what_is_on_file_has_the_claims_of_now(experiment):
    recorded = reproduction_pages.recorded_document(experiment)
    assert [verdict["claim"] for verdict in recorded["verdicts"]] == [claim.name for claim in experiment.claims]
    on_file = reproduction_pages.file_of(experiment).read_text(encoding="utf-8")
    assert reproduction_pages.judge_again(experiment) == on_file, "run scripts/reproduction_pages.py"


@pytest.mark.slow
@pytest.mark.parametrize("paper", PAPERS)
def test_what_is_on_file_is_what_this_code_measures(paper):
    """The quickest experiment of each paper; `make figures` runs all of them."""
    quickest = min(PAPERS[paper], key=lambda experiment: sum(map(effort, set(experiment.runs.values()))))
    reading = quickest.judge(run_all(quickest.runs.values(), 1, lambda *_: None))
    assert changes([(quickest, reading)], DOCS / "figures") == []
