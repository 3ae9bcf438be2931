"""What each operator of a site does in an epoch: rows, results, processor seconds, and when it was through."""

from __future__ import annotations

from sluice.model.clock import Clock
from sluice.model.epoch.work_stats import OperatorWork


class Meter:
    """That of one operator."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.rows_in = self.rows_out = 0
        self.seconds = self.through_at = self._started = 0.0

    def begin(self) -> None:
        """From now on the processor time is this operator's."""
        self._started = self._clock.process_time()

    def pause(self) -> None:
        """Until it begins again, it is not."""
        self.seconds += self._clock.process_time() - self._started

    def end_turn(self) -> None:
        """The operator is through with a turn's rows."""
        self.through_at = self._clock.time()


class OperatorMeters:
    """Those of all operators that had a turn."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._meters: dict[int, Meter] = {}

    def __getitem__(self, operator: int) -> Meter:
        if operator not in self._meters:
            self._meters[operator] = Meter(self._clock)
        return self._meters[operator]

    def works(self) -> tuple[OperatorWork, ...]:
        """What was measured, of operators that had rows or results."""
        return tuple(
            OperatorWork(operator, meter.rows_in, meter.rows_out, round(meter.seconds, 6), meter.through_at)
            for operator, meter in self._meters.items()
            if meter.rows_in or meter.rows_out
        )
