"""The verbs: everything that can be done to units and sites while a query runs, a file each."""

from __future__ import annotations

from typing import TypeAlias

from sluice.verbs.freeze import CleanUp, CleanUpAll, CleanUpUnits, Freeze, FreezeUnit, UnitCleanedUp, UnitFrozen
from sluice.verbs.move import CopyAhead, Move, SetApart
from sluice.verbs.scale import Scale
from sluice.verbs.share import LayOut, PassToken, Release, Share
from sluice.verbs.spill import UnitFetched, UnitSpilled
from sluice.verbs.split import CountBelow, HashProfile, Merge, ProfileHashes, RowsBelow, Split

Action: TypeAlias = Move | Freeze | CleanUp | CleanUpAll | Share | Release | PassToken | LayOut | Split | Merge | Scale
"""Every action that can be asked for."""
SiteInstruction: TypeAlias = SetApart | CopyAhead | FreezeUnit | CleanUpUnits | ProfileHashes | CountBelow
"""What sites can be told to do in an epoch."""
SiteEvent: TypeAlias = UnitFrozen | UnitCleanedUp | UnitSpilled | UnitFetched | HashProfile | RowsBelow
"""What sites tell that has happened in an epoch."""
