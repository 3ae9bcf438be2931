"""A site's modes: it never spills and relocates at once, and nothing that was asked for is forgotten."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.model.errors import ProtocolError
from sluice.sim.worlds.lazy_disk.site_mode import BeginRelocation, BeginSpill, MeasureMemory, Mode, SiteMode


def site_in(mode: Mode) -> SiteMode:
    site = SiteMode(3)
    if mode is Mode.SPILLING:
        site.memory_full()
    elif mode is Mode.RELOCATING:
        site.relocate(1)
    assert site.mode is mode
    return site


EVENTS = {
    "memory_full": lambda site: site.memory_full(),
    "spill": lambda site: site.spill([5]),
    "spilled": lambda site: site.spilled(),
    "relocate": lambda site: site.relocate(2),
    "relocate again": lambda site: site.relocate(1),
    "relocated": lambda site: site.relocated(1),
    "relocated another": lambda site: site.relocated(9),
}
NORMAL, RELOCATING, SPILLING = Mode.NORMAL, Mode.RELOCATING, Mode.SPILLING
TABLE = [
    (NORMAL, "memory_full", [BeginSpill()], SPILLING),
    (NORMAL, "spill", [BeginSpill((5,))], SPILLING),
    (NORMAL, "spilled", None, NORMAL),
    (NORMAL, "relocate", [BeginRelocation(2)], RELOCATING),
    (NORMAL, "relocate again", [BeginRelocation(1)], RELOCATING),
    (NORMAL, "relocated", None, NORMAL),
    (NORMAL, "relocated another", None, NORMAL),
    (RELOCATING, "memory_full", [], RELOCATING),
    (RELOCATING, "spill", [], RELOCATING),
    (RELOCATING, "spilled", None, RELOCATING),
    (RELOCATING, "relocate", [BeginRelocation(2)], RELOCATING),
    (RELOCATING, "relocate again", None, RELOCATING),
    (RELOCATING, "relocated", [MeasureMemory()], NORMAL),
    (RELOCATING, "relocated another", None, RELOCATING),
    (SPILLING, "memory_full", [], SPILLING),
    (SPILLING, "spill", [], SPILLING),
    (SPILLING, "spilled", [MeasureMemory()], NORMAL),
    (SPILLING, "relocate", [], SPILLING),
    (SPILLING, "relocate again", [], SPILLING),
    (SPILLING, "relocated", None, SPILLING),
    (SPILLING, "relocated another", None, SPILLING),
]


def test_the_table_has_every_event_in_every_mode():
    assert {(mode, event) for mode, event, *_ in TABLE} == {(mode, event) for mode in Mode for event in EVENTS}


@pytest.mark.parametrize(("mode", "event", "answer", "after"), TABLE)
def test_an_event_in_a_mode(mode, event, answer, after):
    site = site_in(mode)
    if answer is None:
        with pytest.raises(ProtocolError, match=f"does not fit site 3, whose mode is {mode.value}"):
            EVENTS[event](site)
    else:
        assert EVENTS[event](site) == answer
    assert site.mode is after


def test_what_was_asked_for_during_a_spill_comes_after_it_relocations_first():
    site = site_in(SPILLING)
    assert site.spill([4, 5]) == site.relocate(6) == site.relocate(7) == []
    assert site.spilled() == [BeginRelocation(6), BeginRelocation(7)]
    assert site.relocated(6) == []
    assert site.relocated(7) == [BeginSpill((4, 5))]
    assert site.spilled() == [MeasureMemory()]


def test_a_relocation_that_waits_can_be_given_up():
    site = site_in(SPILLING)
    site.relocate(6)
    assert site.relocated(6) == []
    assert site.spilled() == [MeasureMemory()]


@given(st.lists(st.sampled_from(["full", "spilled", "spill", "relocate", "relocated"]), max_size=40))
def test_it_never_does_both_and_forgets_nothing(events):
    site, moving, waiting, asked, number = SiteMode(0), set(), set(), set(), 0
    spilling = False
    for event in events:
        number += 1
        if event == "full":
            answers = site.memory_full()
        elif event == "spill":
            asked.add(number)
            answers = site.spill([number])
        elif event == "relocate":
            waiting.add(number)
            answers = site.relocate(number)
        elif event == "spilled" and spilling:
            spilling = False
            answers = site.spilled()
        elif event == "relocated" and moving:
            answers = site.relocated(moving.pop())
        else:
            continue
        for answer in answers:
            if isinstance(answer, BeginSpill):
                spilling = True
                asked -= set(answer.units)
            elif isinstance(answer, BeginRelocation):
                waiting.remove(answer.unit)
                moving.add(answer.unit)
            else:
                assert not asked and not waiting
        assert not (spilling and moving)
        assert site.mode is (Mode.SPILLING if spilling else Mode.RELOCATING if moving else Mode.NORMAL)
