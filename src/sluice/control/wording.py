"""What was decided about units, in words: the same in the terminal, in `sluice inspect` and in the report."""

from __future__ import annotations


def action_text(action: object, unit: object, site: object) -> str:
    """What a decision does with its unit.

    >>> action_text("move", 17, 2), action_text("spill", 17, 0), action_text("fetch", 17, 0)
    ('move unit 17 to site 2', 'spill unit 17 at site 0 to disk', 'fetch unit 17 at site 0 from disk')
    """
    match action:
        case "spill":
            return f"spill unit {unit} at site {site} to disk"
        case "fetch":
            return f"fetch unit {unit} at site {site} from disk"
    return f"{action} unit {unit} to site {site}"


def adapted_text(moves: int, spills: int, fetches: int) -> str:
    """How many units changed their place.

    >>> adapted_text(3, 1, 0)
    '3 moves, 1 spill, 0 fetches'
    """
    counts = ((moves, "move", "moves"), (spills, "spill", "spills"), (fetches, "fetch", "fetches"))
    return ", ".join(f"{count:,} {one if count == 1 else more}" for count, one, more in counts)
