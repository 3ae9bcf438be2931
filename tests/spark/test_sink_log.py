"""The lists of an output's files: what Spark's readers make of them, that they stay cheap, and what damage does."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.model.epoch.results import FILES_A_LIST, Listing, Part, Results
from sluice.model.errors import CheckpointError, SluiceError, StorageError
from sluice.spark.sink_log import DIRECTORY, SinkLog
from sluice.state.files.storage import Storage, watch


class Output:
    """An output directory whose epochs have parts of no rows, unless there are real ones."""

    def __init__(self, root: Path) -> None:
        self.root, self.log = root, SinkLog(Storage(str(root)))
        self.newest = Results(-1, (), Listing(), Listing(), 0.0)

    def next(self, parts: int = 1, real: bool = False) -> Results:
        """The results of one more epoch, not listed yet."""
        epoch = self.newest.epoch + 1
        made = tuple(Part(f"part-{epoch:012d}-{i:04d}-ab-cd-0.parquet", 1, 10, 0) for i in range(parts))
        if real:
            for part in made:
                pq.write_table(pa.table({"epoch": [epoch]}), self.root / part.name)
            made = tuple(Part(p.name, 1, (self.root / p.name).stat().st_size, 0) for p in made)
        before, at = self.newest.listing, 1_794_711_267.0 + epoch
        listing = self.log.listing_with(before, made, at) if made else before
        self.newest = Results(epoch, made, before, listing, at)
        return self.newest

    def files(self) -> list[Path]:
        return sorted((self.root / DIRECTORY).iterdir())

    def by_spark(self) -> list[str]:
        """The names of the files that Spark's reader takes, by its rule."""
        lists = {int(p.name.removesuffix(".compact")): p for p in self.files()}
        compact = sorted((n for n, p in lists.items() if p.suffix), reverse=True)
        interval = compact[0] - compact[1] if len(compact) > 1 else compact[0] + 1
        newest = max(lists)
        start = max(0, (newest + 1) // interval * interval - 1)
        for number in range(start, newest + 1):
            assert bool(lists[number].suffix) == ((number + 1) % interval == 0)
        lines = [line for n in range(start, newest + 1) for line in lists[n].read_text().splitlines()[1:]]
        return [json.loads(line)["path"].rsplit("/", 1)[1] for line in lines]


@pytest.fixture
def output(tmp_path: Path) -> Output:
    return Output(tmp_path)


class TestLists:
    def test_all_files_are_listed_once_at_any_time(self, output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sluice.model.epoch.results.FILES_A_LIST", 4)
        names: list[str] = []
        for epoch in range(300):
            output.log.add(output.next(9 if epoch % 3 == 0 else epoch % 2))
            names += [p.name for p in output.newest.parts]
            assert output.newest.listing.files == len(names)
            if epoch % 9 == 0 or output.newest.listing.is_compact:
                assert output.by_spark() == names
                output.log.check(output.newest)
        assert output.newest.listing.interval > 80, "compact lists get rarer as there are more files"

    def test_days_of_epochs_list_each_file_a_bounded_number_of_times(self) -> None:
        """Two parts an epoch, an epoch a second; the lists are only counted here."""
        listing, written, epochs = Listing(), 0, 300_000
        most = 0
        for _ in range(epochs):
            listing = listing.after(2, 0)
            written += listing.files if listing.is_compact else 2
            most = max(most, len(listing.numbers))
        assert written / epochs < 2 * FILES_A_LIST + 2
        assert most <= max(10, listing.files / FILES_A_LIST)

    def test_adding_reads_and_lists_nothing_between_two_compact_lists(self, output: Output) -> None:
        for _ in range(12):
            output.log.add(output.next(3))
        done: list[str] = []
        with watch(lambda operation, path: done.append(operation)):
            output.log.add(output.next(3))
        assert not output.newest.listing.is_compact
        assert not {"read", "list"} & set(done)

    def test_showing_an_epoch_again_changes_nothing(self, output: Output) -> None:
        """Also much later, when its list is gone: by a driver that slept meanwhile."""
        seen = []
        for _ in range(60):
            output.log.add(output.next(2))
            seen.append(output.newest)
            before = output.by_spark()
            for results in (seen[-1], seen[len(seen) // 2], seen[0], seen[max(0, len(seen) - 11)]):
                with suppress(StorageError):  # what its list would repeat is gone, too
                    output.log.add(results)
                assert output.by_spark() == before
            output.log.check(output.newest)

    def test_few_files_stay(self, output: Output) -> None:
        for _ in range(500):
            output.log.add(output.next(2))
        assert len(output.files()) <= 21


class TestDamage:
    def history(self, output: Output, epochs: int) -> Output:
        for _ in range(epochs):
            output.log.add(output.next(2))
        return output

    @pytest.mark.parametrize("how", ["delete", "empty", "cut", "flip"])
    @pytest.mark.parametrize("epochs", [1, 5, 11, 25, 30])
    def test_a_list_that_counts_is_missing_or_another(self, output: Output, how: str, epochs: int) -> None:
        self.history(output, epochs)
        counting = {str(n) for n in output.newest.listing.numbers}
        for file in [f for f in output.files() if f.name.removesuffix(".compact") in counting]:
            whole = file.read_bytes()
            if how == "delete" and file.name.startswith(str(output.newest.listing.number)):
                file.unlink()  # as if its driver had died before
                output.log.check(output.newest)
                output.log.add(output.newest)
                assert file.read_bytes() == whole
                continue
            if how == "delete":
                file.unlink()
            else:
                file.write_bytes({"empty": b"", "cut": whole[:-9], "flip": whole[:-9] + b"x" + whole[-8:]}[how])
            with pytest.raises(SluiceError, match="_spark_metadata"):
                output.log.check(output.newest)
            file.write_bytes(whole)
        output.log.check(output.newest)

    def test_it_is_not_handed_on_in_a_compact_list(self, output: Output) -> None:
        self.history(output, 10)
        file = next(f for f in output.files() if f.name == "15")
        file.write_bytes(file.read_bytes()[:-9])
        with pytest.raises(SluiceError, match="lists 9 to 18 are not what was written"):
            output.log.add(output.next(2))
        assert not [f for f in output.files() if f.name.startswith("19")]

    def test_the_newest_epoch_may_not_be_listed_yet(self, output: Output) -> None:
        for epochs in range(25):
            output.log.check(output.next(epochs % 3))
            output.log.add(output.newest)

    def test_lists_of_later_epochs_than_the_checkpoint_has(self, output: Output) -> None:
        self.history(output, 12)
        older = output.newest
        self.history(output, 1)
        with pytest.raises(CheckpointError, match="knows later epochs than the checkpoint"):
            output.log.check(older)

    def test_lists_of_somebody_else(self, output: Output) -> None:
        self.history(output, 1)
        with pytest.raises(CheckpointError, match="knows later epochs"):
            output.log.check(Results(-1, (), Listing(), Listing(), 0.0))


@pytest.mark.spark
def test_spark_reads_what_is_listed(spark: Any, output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through compact lists and doubled intervals, also with another interval in the session."""
    monkeypatch.setattr("sluice.model.epoch.results.FILES_A_LIST", 1)
    (output.root / "part-000000000000-0000-ab-ef-0.parquet").write_bytes(b"of a failed attempt")
    for epoch in range(170):
        output.log.add(output.next(1, real=True))
        if epoch in (0, 9, 10, 11, 20, 21) or epoch % 17 == 0 or output.newest.listing.is_compact:
            spark.conf.set("spark.sql.streaming.fileSink.log.compactInterval", str(5 + epoch % 9))
            rows = spark.read.parquet(str(output.root)).collect()
            assert sorted(r.epoch for r in rows) == list(range(epoch + 1))
    spark.conf.unset("spark.sql.streaming.fileSink.log.compactInterval")
    assert output.newest.listing.interval >= 40
