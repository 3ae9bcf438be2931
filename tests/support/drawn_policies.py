"""Policies with settings, drawn at random, for tests of what any of them does to an answer."""

from __future__ import annotations

import numpy as np

from sluice.model.errors import FlowError
from sluice.policies import NAMES, Policy, policy, policy_class
from sluice.policies.settings import Choice, Count, Flag, Number, Setting, settings_of

WIDTH = 3.0
"""How far from its least value a number is drawn that has no greatest one."""


def drawn_policy(rng: np.random.Generator) -> Policy:
    """Any policy that has a name; half of its settings, about, are others than usual."""
    name = str(rng.choice(NAMES))
    settings = settings_of(policy_class(name))
    while True:
        chosen = {key: _value(setting, rng) for key, setting in settings.items() if rng.random() < 0.5}
        try:
            return policy(name, **chosen)
        except FlowError:  # one of them does not go with another: a low mark above the high one
            continue


def _value(setting: Setting, rng: np.random.Generator) -> object:
    match setting:
        case Flag():
            return bool(rng.random() < 0.5)
        case Count():
            return int(rng.integers(1, 9))
        case Choice(words=words):
            return str(rng.choice(words))
        case Number(least=least, above=above, most=most):
            low = max(least, above, 0.0)
            return low + (1.0 - rng.random()) * (min(most, low + WIDTH) - low)  # above `low`, up to the greatest
        case _:
            raise AssertionError(f"nobody has said how {setting} is drawn")
