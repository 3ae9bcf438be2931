"""Epochs as a journal keeps them, made by hand: with all the figures that a view can show, and no query behind them."""

from __future__ import annotations

from typing import Any

import numpy as np
from specs import SECOND

from sluice.control.journal import FORMAT, Journal
from sluice.model.codec import encode_column
from sluice.model.epoch import EpochRecord
from sluice.model.routing import Routing
from sluice.state.storage import Storage

UNITS = 128
AT = 1_794_711_267.0
IDENTITY = {
    "format": FORMAT,
    "id": "0" * 16,
    "name": "desk",
    "partitions": UNITS,
    "streams": [{"name": "trades", "columns": [["symbol", "string"]], "eventTime": "ts", "delay": 5 * SECOND}],
    "says": "Window join\n  'trades' on (symbol)",
}


def owned_journal(uri: str, name: str = "desk", **more: Any) -> Journal:
    """The journal of a flow's checkpoint, made if need be, by a driver that has just taken it over."""
    storage = Storage(uri)
    storage.make_dir()
    journal = Journal(storage)
    journal.claim({k: v for k, v in IDENTITY.items() if k != "format"} | {"name": name, **more})
    first = EpochRecord(-1, (None,), Routing.even(UNITS, 2), ((),) * 2)
    assert journal.take_over("ab12", AT, journal.newest(), first)
    return journal


def record(number: int, sites: int = 2, rows: int = 100, **more: Any) -> EpochRecord:
    """An epoch that brought `rows` rows, each unit more of them than the one before it."""
    unit = np.arange(UNITS)
    figures = {
        "streams": [{"name": "trades", "rows": rows, "late": 3, "nulls": 0, "outOfRange": 0}],
        "sites": [
            {
                "site": s,
                "units": UNITS // sites,
                "rowsIn": rows // sites,
                "rowsOut": 2 * rows // sites,
                "rows": 1000 + s,
                "segments": 4,
                "memoryBytes": 2048,
                "diskBytes": 1024,
                "durableBytes": 3072,
                "spilledBytes": 0,
                "fetchedBytes": 0,
                "mergedRows": 0,
                "busySeconds": 0.25 + s,
                "pendingRows": 10 * s,
                "pendingBytes": 400 * s,
                "memoryLimit": 4096,
                "spilledUnits": s,
                "executor": f"host-{s}/4711",
                "operators": {},
                "seconds": {},
            }
            for s in range(sites)
        ],
        "rowsIn": rows,
        "rowsOut": 2 * rows,
        "lateRows": 3,
        "nullRows": 0,
        "outOfRangeRows": 0,
        "seconds": {"read": 0.2, "open": 0.1, "sort": 0.1, "kernel": 0.2, "sink": 0.1, "durable": 0.1, "job": 2.0},
        "committedAt": AT + number,
        "moves": number % 2,
        "spills": 1,
        "fetches": 0,
        "backlogRows": sum(10 * s for s in range(sites)),
        "imbalance": 1.5,
        "unitRows": encode_column(unit),
        "unitResults": encode_column(2 * unit),
        "unitPending": encode_column(unit // 100),
        "unitMemory": encode_column(16 * unit),
        "unitDisk": encode_column(8 * unit),
        "unitSeconds": encode_column(unit / 1000),
    }
    return EpochRecord(number, (None,), Routing.even(UNITS, sites), ((),) * sites, figures=figures, **more)
