"""Tests of the flow, without Spark: rows in, results out."""

from __future__ import annotations

from flow import define

from sluice import testing

TRADES = [
    [
        {"symbol": "A", "ts": "2026-01-02 09:30:05", "price": 10.0},
        {"symbol": "B", "ts": "2026-01-02 09:30:06", "price": 7.0},
    ],
    [{"symbol": "A", "ts": "2026-01-02 09:30:20", "price": 12.0}],
    testing.Arrival(upTo="2026-01-02 09:32:00"),  # time goes on: the window closes
]
QUOTES = [
    [{"symbol": "A", "ts": "2026-01-02 09:30:01", "bid": 9.0, "ask": 9.5}],
    [{"symbol": "A", "ts": "2026-01-02 09:30:12", "bid": 9.0, "ask": 10.25}],
    testing.Arrival(upTo="2026-01-02 09:32:00"),
]


def test_pairs_of_a_minute() -> None:
    outcome = testing.run(define, {"trades": TRADES, "quotes": QUOTES})
    (bar,) = outcome.rows()
    assert (bar["symbol"], bar["pairs"], bar["high"], bar["spread"]) == ("A", 3, 12.0, 1.0)


def test_the_same_while_state_moves_and_drivers_die() -> None:
    calm = testing.run(define, {"trades": TRADES, "quotes": QUOTES})
    for seed in range(3):
        assert testing.run(define, {"trades": TRADES, "quotes": QUOTES}, disturb=seed).rows() == calm.rows()
