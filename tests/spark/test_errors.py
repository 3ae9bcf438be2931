"""A mistake in a flow is refused before anything runs, in the user's own names, and leaves everything as it was."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from arrivals import arrive, fingerprint, ticks, workspaces
from pyspark.sql import functions as F

from sluice import CheckpointError, ClusterView, Flow, FlowError, Policy, Scale
from sluice.spark.starting import active_queries

pytestmark = pytest.mark.spark

TRADES = "symbol string, ts timestamp, price double, size bigint, venue struct<name: string>"
QUOTES = "symbol string, sym string, ts timestamp, local timestamp_ntz, size bigint, day date"
AS_SEEN = "symbol string, ts timestamp, price double"


class Scaling(Policy):
    """A policy that would choose the number of sites."""

    name, scales = "scaling", True

    def decide(self, view: ClusterView) -> tuple[Scale, ...]:
        return (Scale(len(view.sites) + 1, "to see"),)


@pytest.fixture(scope="module")
def nothing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nothing")


@pytest.fixture(autouse=True)
def nothing_has_run(spark: Any) -> Iterator[None]:
    """After every refusal: no query, nothing cached, nothing in the local tiers or among the temporary files."""
    cached = spark.sparkContext._jsc.getPersistentRDDs().size()
    before = workspaces(spark)
    yield
    active = active_queries()
    for running in active:
        running.stop()
    assert not active
    assert workspaces(spark) == before
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == cached


@pytest.fixture
def flow(spark: Any) -> Flow:
    return Flow(spark, name="desk")


@pytest.fixture
def trades(spark: Any, flow: Flow, nothing: Path) -> Any:
    return flow.readStream("trades", spark.readStream.schema(TRADES).parquet(str(nothing)), eventTime="ts")


@pytest.fixture
def quotes(spark: Any, flow: Flow, nothing: Path) -> Any:
    return flow.readStream("quotes", spark.readStream.schema(QUOTES).parquet(str(nothing)), eventTime="ts")


@pytest.fixture
def writer(trades: Any, quotes: Any) -> Any:
    return trades.join(quotes, on="symbol", within="30 seconds").writeStream


class TestKeys:
    @pytest.mark.parametrize(
        ("on", "message"),
        [
            ("price", r"stream 'quotes' has no column 'price'.*symbol, sym, ts"),
            ("Sym", r"stream 'trades' has no column 'Sym'.*symbol, ts, price"),
            (["symbol", "ticker"], r"stream 'trades' has no column 'ticker'"),
            ({"trades": "ticker", "quotes": "sym"}, r"stream 'trades' has no column 'ticker'"),
            ({"trades": "symbol", "quotes": "ticker"}, r"stream 'quotes' has no column 'ticker'.*symbol, sym"),
            ({"trades": "symbol", "quote": "sym"}, r"on= names 'quote'.*trades, quotes"),
            ({"trades": "symbol"}, r"on= says nothing of stream 'quotes'"),
            (
                {"trades": ["symbol", "size"], "quotes": "sym"},
                r"on= gives 2 key columns for 'trades' and 1 for 'quotes'",
            ),
            ({"trades": "symbol", "quotes": "size"}, r"trades\.symbol \(string\).*quotes\.size \(int64\).*cast"),
            ({"trades": "price", "quotes": "size"}, r"trades\.price \(double\).*quotes\.size \(int64\).*cast"),
            ({"trades": "ts", "quotes": "local"}, r"trades\.ts .*quotes\.local .*cannot be compared"),
            ({"trades": "venue", "quotes": "symbol"}, r"column 'venue' of stream 'trades' has type struct.*fields"),
            ([], r"on= is empty"),
            ({"trades": [], "quotes": []}, r"on= is empty"),
            ("", r"stream 'trades' has no column ''"),
            (None, r"needs on="),
            (7, r"on=.*7"),
            ([7], r"7"),
        ],
    )
    def test_keys_that_cannot_be_joined_on(self, trades: Any, quotes: Any, on: Any, message: str) -> None:
        with pytest.raises(FlowError, match=message):
            trades.join(quotes, on=on, within="30 seconds")


class TestColumnsOfSpark:
    """Where one of Spark's columns cannot be taken, the error says what to write."""

    @pytest.mark.parametrize(
        ("describe", "message"),
        [
            (lambda t, q: t.join(q, on=F.col("symbol"), within="30 seconds"), r"on= takes names of columns"),
            (lambda t, q: t.join(q, on=[F.col("symbol")], within="30 seconds"), r"on= takes names of columns"),
            (lambda t, q: t.join(q, where=F.col("size") > 3, within="30 seconds"), r"'size'.*ambiguous"),
            (lambda t, q: t.join(q, where=7, within="30 seconds"), r"where takes Spark SQL text.*or a column of Spark"),
            (lambda t, q: t.join(q, "symbol", "left"), r"within='left' is a kind of join.*write how='left'"),
            (lambda t, q: t.join(q, on="symbol", within=F.expr("INTERVAL 1 DAY")), r"within must be a duration"),
            (lambda t, q: t.filter(F.col("cost") > 3), r"stream 'trades' has no column 'cost'"),
            (lambda t, q: t.select(["price"], "size"), r"Spark SQL text.*not \['price'\]"),
            (lambda t, q: t.withColumn(F.col("worth"), "price"), r"cannot be the name of a column"),
            (lambda t, q: t.groupBy("symbol", F.window("ts", "1 minute").alias("w")), r"window_start and window_end"),
            (lambda t, q: t.groupBy(F.to_date("ts")), r"withColumn\('day', 'date\(ts\)'\)\.groupBy\('day'\)"),
            (lambda t, q: t.groupBy("symbol").window(F.lit("1 minute")), r"window's length must be a duration"),
            (lambda t, q: t.groupBy("symbol").last(F.lit(3)), r"last takes a whole number"),
            (lambda t, q: t.groupBy("symbol").last(3).agg(F.avg("price") + 1), r"aggregate is a function of one col"),
            (lambda t, q: t.groupBy("symbol").last(3).agg("price"), r"agg takes its aggregates by name"),
            (lambda t, q: t.groupBy("symbol").last(3).agg(mean=F.avg("price")), r"'mean' must be \(column, function\)"),
            (lambda t, q: t.groupBy("symbol").last(3).agg(mean=(F.col("price"), "avg")), r"must be \(column, function"),
            (lambda t, q: t.alias(F.col("x")), r"an alias must be a plain word"),
        ],
    )
    def test_one_in_place_of_text(self, trades: Any, quotes: Any, describe: Any, message: str) -> None:
        with pytest.raises(FlowError, match=f"(?s){message}"):
            describe(trades, quotes)

    def test_one_as_the_event_time(self, spark: Any, flow: Flow, nothing: Path) -> None:
        message = r"eventTime of stream 'late' takes names of columns, not Spark's Column<.*withColumn"
        with pytest.raises(FlowError, match=message):
            flow.readStream("late", spark.readStream.schema(AS_SEEN).parquet(str(nothing)), eventTime=F.to_date("ts"))
        with pytest.raises(FlowError, match=message):
            flow.readFiles("late", str(nothing), schema=AS_SEEN, eventTime=F.to_date("ts"))
        assert flow.readFiles("named", str(nothing), schema=AS_SEEN, eventTime=F.col("ts")).event_time == "ts"


class TestConditions:
    @pytest.mark.parametrize(
        ("where", "message"),
        [
            ("trades.cost > 1", r"trades\.cost.*stream 'trades' has only symbol, ts, price"),
            ("trade.price > 1", r"trade\.price.*no stream 'trade'.*trades, quotes"),
            ("cost > 1", r"'cost'.*none of the joined streams"),
            ("size > 1", r"'size'.*ambiguous; write trades\.size or quotes\.size"),
            ("trades.price", r"trades\.price.*yields DOUBLE"),
            ("trades.price >", r"trades\.price >"),
            ("trades.venue > quotes.size", r"trades\.venue > quotes\.size"),
            ("frobnicate(trades.price) > 1", r"frobnicate"),
        ],
    )
    def test_a_where_that_means_nothing(self, trades: Any, quotes: Any, where: str, message: str) -> None:
        with pytest.raises(FlowError, match=f"(?is){message}"):
            trades.join(quotes, on="symbol", within="30 seconds", where=where)


class TestTimes:
    @pytest.mark.parametrize(
        ("event_time", "message"),
        [
            ("time", r"stream 'quotes' has no column 'time' for its event time; it has symbol, sym, ts"),
            ("day", r"event time 'day' of stream 'quotes' must be a timestamp, it is date32.*cast"),
            ("size", r"event time 'size' of stream 'quotes' must be a timestamp, it is int64"),
            ("", r"stream 'quotes'.*event ?time"),
        ],
    )
    def test_an_event_time_that_is_none(
        self, spark: Any, flow: Flow, nothing: Path, event_time: str, message: str
    ) -> None:
        with pytest.raises(FlowError, match=f"(?i){message}"):
            flow.readStream("quotes", spark.readStream.schema(QUOTES).parquet(str(nothing)), eventTime=event_time)
        with pytest.raises(FlowError, match=f"(?i)({message}|'quotes' needs eventTime)"):
            flow.readFiles("quotes", str(nothing), schema=QUOTES, eventTime=event_time)

    def test_instants_and_clock_times_are_not_compared(
        self, spark: Any, flow: Flow, trades: Any, nothing: Path
    ) -> None:
        local = flow.readStream("local", spark.readStream.schema(QUOTES).parquet(str(nothing)), eventTime="local")
        with pytest.raises(FlowError, match=r"trades\.ts and local\.local .*TIMESTAMP.*TIMESTAMP_NTZ.*cast"):
            trades.join(local, on="symbol", within="30 seconds")

    @pytest.mark.parametrize(
        ("within", "message"),
        [
            ("-5 seconds", r"within must not be negative: '-5 seconds'"),
            (timedelta(seconds=-5), r"within must not be negative"),
            ("5 parsecs", r"within is not a duration: '5 parsecs'"),
            ("soon", r"within is not a duration: 'soon'; write for example .* or 'unbounded'"),
            ("", r"within is empty"),
            (30, r"within must be a duration.*30"),
            (("5 seconds", "-1 second"), r"within.*negative: '-1 second'"),
            (("5 seconds", "soon"), r"within.*'soon'"),
            (("5 seconds",), r"within"),
            (("5 seconds", "5 seconds", "5 seconds"), r"within"),
            (None, r"needs within="),
        ],
    )
    def test_a_within_that_is_no_time_bound(self, trades: Any, quotes: Any, within: Any, message: str) -> None:
        with pytest.raises(FlowError, match=message):
            trades.join(quotes, on="symbol", within=within)

    @pytest.mark.parametrize("within", ["unbounded", "UNBOUNDED", " Unbounded", ("Unbounded", "unBOUNDED")])
    def test_unbounded_is_a_bound_in_any_case(self, trades: Any, quotes: Any, within: Any) -> None:
        joined = trades.join(quotes, on="symbol", within=within).relation.origin.spec
        assert joined.reach == trades.join(quotes, on="symbol", within="unbounded").relation.origin.spec.reach

    def test_a_pair_of_bounds_is_for_two_streams(self, spark: Any, flow: Flow, trades: Any, quotes: Any) -> None:
        with pytest.raises(FlowError, match=r"within.*two"):
            flow.join([trades, quotes, trades.alias("later")], on="symbol", within=("1 second", "2 seconds"))

    @pytest.mark.parametrize(
        ("delay", "message"),
        [
            ("-5 seconds", r"delay of stream 'late' must not be negative: '-5 seconds'"),
            ("a while", r"delay of stream 'late' is not a duration: 'a while'"),
            (5, r"delay of stream 'late' must be a duration"),
        ],
    )
    def test_a_delay_that_is_no_duration(self, spark: Any, flow: Flow, nothing: Path, delay: Any, message: str) -> None:
        with pytest.raises(FlowError, match=message):
            flow.readStream("late", spark.readStream.schema(AS_SEEN).parquet(str(nothing)), "ts", delay)
        with pytest.raises(FlowError, match=message):
            flow.readFiles("late", str(nothing), schema=AS_SEEN, eventTime="ts", delay=delay)


def with_watermark(spark: Any, nothing: Path, column: str = "ts", delay: str = "1 minute") -> Any:
    columns = "symbol string, ts timestamp, seen timestamp, price double"
    return spark.readStream.schema(columns).parquet(str(nothing)).withWatermark(column, delay)


class TestWatermarks:
    """What a DataFrame's own withWatermark says is the stream's delay; it is never passed over in silence."""

    @pytest.mark.parametrize(
        "below",
        [
            lambda df: df,
            lambda df: df.filter("price > 3").select("symbol", "ts"),
            lambda df: df.withColumnRenamed("ts", "late").withColumnRenamed("late", "ts"),
            lambda df: df.withWatermark("seen", "1 hour").withWatermark("ts", "1 minute"),
        ],
    )
    def test_it_is_the_delay(self, spark: Any, flow: Flow, nothing: Path, below: Callable[[Any], Any]) -> None:
        late = flow.readStream("late", below(with_watermark(spark, nothing)), eventTime="ts")
        assert late.stream.delay == 60_000_000

    def test_the_same_may_be_said_twice(self, spark: Any, flow: Flow, nothing: Path) -> None:
        late = flow.readStream("late", with_watermark(spark, nothing), eventTime="ts", delay="60 seconds")
        assert late.stream.delay == 60_000_000

    def test_without_it_there_is_no_delay(self, trades: Any) -> None:
        assert trades.stream.delay == 0

    @pytest.mark.parametrize("delay", ["5 seconds", "0 seconds", None])
    def test_a_delay_that_contradicts_it(self, spark: Any, flow: Flow, nothing: Path, delay: Any) -> None:
        with pytest.raises(FlowError, match=r"'late': delay=.* contradicts .*withWatermark\('ts', '1 minute'\).*out"):
            flow.readStream("late", with_watermark(spark, nothing), eventTime="ts", delay=delay)

    @pytest.mark.parametrize(
        ("below", "column"),
        [
            (lambda df: df.withWatermark("seen", "1 hour"), "seen"),  # Spark keeps the newest alone
            (lambda df: df.withColumn("ts", df.ts + timedelta(seconds=1)), "ts"),
            (lambda df: df.drop("ts").withColumnRenamed("seen", "ts"), "ts"),
            (lambda df: df.groupBy("ts").count().selectExpr("ts + INTERVAL 1 SECOND AS ts"), "ts"),
        ],
    )
    def test_one_that_says_nothing_of_the_event_time(
        self, spark: Any, flow: Flow, nothing: Path, below: Callable[[Any], Any], column: str
    ) -> None:
        frame = below(with_watermark(spark, nothing))
        with pytest.raises(FlowError, match=f"'late': .* withWatermark on '{column}'.* event time 'ts'; .*delay="):
            flow.readStream("late", frame, eventTime="ts")
        assert flow.readStream("late", frame, eventTime="ts", delay="5 seconds").stream.delay == 5_000_000

    @pytest.mark.parametrize(
        ("delay", "parts"), [("5 seconds", "'1 minute' and '5 seconds'"), (None, "'1 minute' and n")]
    )
    def test_different_ones_in_a_union(
        self, spark: Any, flow: Flow, nothing: Path, delay: str | None, parts: str
    ) -> None:
        other = (
            with_watermark(spark, nothing, delay=delay)
            if delay
            else spark.readStream.schema(AS_SEEN).parquet(str(nothing))
        )
        frame = with_watermark(spark, nothing).select("ts", "symbol").union(other.select("ts", "symbol"))
        with pytest.raises(FlowError, match=f"'late': .* unites rows with different watermarks, {parts}.*delay="):
            flow.readStream("late", frame, eventTime="ts")
        assert flow.readStream("late", frame, eventTime="ts", delay="5 seconds").stream.delay == 5_000_000

    def test_equal_ones_in_a_union(self, spark: Any, flow: Flow, nothing: Path) -> None:
        frame = with_watermark(spark, nothing).union(with_watermark(spark, nothing))
        assert flow.readStream("late", frame, eventTime="ts").stream.delay == 60_000_000


class TestStreams:
    def test_a_batch_is_no_stream(self, spark: Any, flow: Flow) -> None:
        with pytest.raises(FlowError, match=r"stream 'trades' was given a batch DataFrame; use spark\.readStream"):
            flow.readStream("trades", spark.createDataFrame([], TRADES), eventTime="ts")

    def test_nor_is_anything_else(self, flow: Flow) -> None:
        with pytest.raises(FlowError, match=r"stream 'trades' must be given a streaming DataFrame, not list"):
            flow.readStream("trades", [1, 2], eventTime="ts")  # type: ignore[arg-type]
        with pytest.raises(FlowError, match="SparkSession"):
            Flow("local[2]")  # type: ignore[arg-type]

    @pytest.mark.parametrize("name", ["my trades", "", "1st", 7])
    def test_a_name_is_a_plain_word(self, spark: Any, flow: Flow, trades: Any, nothing: Path, name: Any) -> None:
        with pytest.raises(FlowError, match=f"name.*{name!r}"):
            flow.readStream(name, spark.readStream.schema(TRADES).parquet(str(nothing)), eventTime="ts")
        with pytest.raises(FlowError, match=f"alias.*{name!r}"):
            trades.alias(name)

    def test_each_has_its_own_name(self, spark: Any, flow: Flow, trades: Any, nothing: Path) -> None:
        with pytest.raises(FlowError, match=r"there is a stream 'trades' in this flow already"):
            flow.readStream("trades", spark.readStream.schema(TRADES).parquet(str(nothing)), eventTime="ts")
        with pytest.raises(FlowError, match=r"there is a stream 'trades' in this flow already"):
            flow.readFiles("trades", str(nothing), schema=TRADES, eventTime="ts")

    def test_a_stream_of_another_flow(self, spark: Any, trades: Any, nothing: Path) -> None:
        other = Flow(spark, "other").readFiles("fills", str(nothing), schema=AS_SEEN, eventTime="ts")
        with pytest.raises(FlowError, match=r"stream 'fills' belongs to another Flow"):
            trades.join(other, on="symbol", within="1 second")

    def test_a_stream_with_itself_needs_an_alias(self, flow: Flow, trades: Any, quotes: Any) -> None:
        with pytest.raises(FlowError, match=r"'trades' stands twice.*trades\.alias\("):
            trades.join(trades, on="symbol", within="1 second")
        with pytest.raises(FlowError, match=r"'quotes' stands twice"):
            trades.join(quotes, on="symbol", within="1 second") and flow.join(
                [trades, quotes, trades.alias("quotes")], on="symbol", within="1 second"
            )

    def test_what_can_be_joined(self, spark: Any, flow: Flow, trades: Any) -> None:
        with pytest.raises(FlowError, match=r"at least two streams"):
            flow.join([trades], on="symbol", within="1 second")
        with pytest.raises(FlowError, match=r"only streams and tables of a flow can be joined, not DataFrame"):
            trades.join(spark.range(1), on="symbol", within="1 second")

    def test_result_columns_of_one_name(self, spark: Any, flow: Flow, nothing: Path) -> None:
        a = flow.readFiles("a", str(nothing), schema="k int, ts timestamp, b_k int", eventTime="ts")
        b = flow.readFiles("a_b", str(nothing), schema="k int, ts timestamp", eventTime="ts")
        with pytest.raises(FlowError, match=r"two result columns.*'a_b_k'.*rename"):
            a.join(b, on="k", within="1 second")


class TestFiles:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"format": "orc"}, r"stream 'fills'.*format 'orc'.*parquet, csv, json, arrow"),
            ({"format": "csv", "heder": True}, r"stream 'fills'.*csv.*'heder'.*header"),
            ({"format": "csv", "header": "perhaps"}, r"stream 'fills'.*'header'.*true or false.*'perhaps'"),
            ({"format": "parquet", "header": True}, r"stream 'fills'.*parquet.*'header'"),
            ({"maxFilesPerTriger": 1}, r"stream 'fills'.*'maxFilesPerTriger'"),
            ({"schema": "symbol strin"}, r"schema of stream 'fills'.*symbol strin"),
            ({"schema": 7}, r"schema of stream 'fills'"),
            ({"schema": None}, r"stream 'fills'.*no parquet file.*give schema="),
            ({"schema": None, "path": "/does/not/exist"}, r"stream 'fills'.*/does/not/exist"),
        ],
    )
    def test_files_that_cannot_be_read(
        self, flow: Flow, nothing: Path, arguments: dict[str, Any], message: str
    ) -> None:
        given = {"path": str(nothing), "schema": AS_SEEN, "eventTime": "ts", **arguments}
        with pytest.raises(FlowError, match=f"(?s){message}"):
            flow.readFiles("fills", **given)

    def test_a_directory_that_is_not_there(self, flow: Flow, trades: Any, tmp_path: Path) -> None:
        absent = tmp_path / "absent"
        with pytest.raises(FlowError, match=r"stream 'fills'.*absent"):
            fills = flow.readFiles("fills", str(absent), schema=AS_SEEN, eventTime="ts")
            fills.join(trades, on="symbol", within="1 second").writeStream.format("noop").start()


class TestWriter:
    @pytest.mark.parametrize(
        ("describe", "message"),
        [
            (lambda w, d: w, r"format\('parquet'\).*foreachBatch"),
            (lambda w, d: w.format("parquet").option("checkpointLocation", d), r"parquet sink needs option\('path'"),
            (lambda w, d: w.format("parquet").option("path", d), r"parquet sink needs option\('checkpointLocation'"),
            (lambda w, d: w.format("memory"), r"memory sink needs queryName"),
            (lambda w, d: w.format("kafka"), r"no sink 'kafka'.*parquet, memory, console, noop"),
            (lambda w, d: w.foreachBatch("f"), r"foreachBatch takes a function"),
            (lambda w, d: w.option("chekpointLocation", d), r"no option 'chekpointLocation'.*checkpointLocation"),
            (lambda w, d: w.options(site=2), r"no option 'site'.*sites"),
            (lambda w, d: w.policy("dynamic"), r"no policy 'dynamic'; known:.*static"),
            (lambda w, d: w.policy("hybrid", collect="soon"), r"collect.*soon"),
            (lambda w, d: w.policy("hybrid", collect="0 seconds"), r"more than no time"),
            (lambda w, d: w.policy(7), r"policy.*7"),
            (lambda w, d: w.policy("load", advise="maybe"), r"advise='maybe'.*True or False"),
            (lambda w, d: w.policy("elastic", th_imb=-1), r"policy 'elastic': th_imb=-1: .*at least 1"),
            (lambda w, d: w.format("noop").policy("elastic"), r"'elastic' chooses how many sites.*option\('maxSites'"),
            (lambda w, d: w.format("noop").policy(Scaling()), r"'scaling' chooses how many sites.*hybrid"),
            (lambda w, d: w.format("noop").option("unitSize", "0"), r"option 'unitSize' must be at least one byte"),
            (lambda w, d: w.outputMode("replace"), r"no output mode 'replace'; known: append, update, complete"),
            (lambda w, d: w.format("noop").outputMode("complete"), r"these results are final, and appended"),
            (lambda w, d: w.queryName(" "), r"queryName"),
            (lambda w, d: w.trigger(), r"trigger takes either processingTime.*availableNow"),
            (lambda w, d: w.trigger(processingTime="1 second", availableNow=True), r"trigger takes either"),
            (lambda w, d: w.trigger(availableNow=False), r"availableNow must be True"),
            (lambda w, d: w.trigger(once=True), r"trigger.*once"),
            (lambda w, d: w.trigger(continuous="1 second"), r"trigger.*continuous"),
            (lambda w, d: w.trigger(processingTime="-1 second"), r"processingTime must not be negative"),
            (lambda w, d: w.trigger(processingTime="often"), r"processingTime is not a duration: 'often'"),
            (lambda w, d: w.trigger(processingTime=5), r"processingTime must be a duration"),
            (lambda w, d: w.format("noop").option("sites", 0), r"option 'sites' must be.*at least 1, not 0"),
            (lambda w, d: w.format("noop").option("sites", "all"), r"option 'sites'.*'all'"),
            (lambda w, d: w.format("noop").option("partitions", 1.5), r"option 'partitions'.*1\.5"),
            (lambda w, d: w.format("noop").options(sites=8, partitions=4), r"partitions \(4\).*sites \(8\)"),
            (lambda w, d: w.format("noop").option("partitions", 10**6), r"partitions \(1000000\).*65536"),
            (lambda w, d: w.format("noop").options(minSites=4, maxSites=2), r"minSites \(4\).*maxSites \(2\)"),
            (lambda w, d: w.format("noop").options(maxSites=8, partitions=4), r"maxSites \(8\).*partitions \(4\)"),
            (lambda w, d: w.format("noop").options(sites=1, minSites=2), r"sites \(1\) .* minSites \(2\) to maxSites"),
            (lambda w, d: w.format("noop").options(maxSites=2).policy(Scaling()), r"'scaling' .* give option\('epochB"),
            (lambda w, d: w.format("noop").option("siteMemory", "lots"), r"siteMemory is not a size: 'lots'"),
            (lambda w, d: w.format("noop").option("siteMemory", -1), r"siteMemory is not a size: -1"),
            (lambda w, d: w.format("console").option("numRows", "few"), r"option 'numRows'.*'few'"),
            (
                lambda w, d: w.format("parquet").options(path=d, compression="zip", checkpointLocation=d),
                "'?compression'?.*zip",
            ),
        ],
    )
    def test_a_query_that_cannot_start(
        self, writer: Any, tmp_path: Path, describe: Callable[..., Any], message: str
    ) -> None:
        with pytest.raises(FlowError, match=f"(?s){message}"):
            describe(writer, str(tmp_path / "given")).start()
        assert not list(tmp_path.iterdir())

    def test_a_name_that_a_running_query_has(self, spark: Any, writer: Any) -> None:
        """Spark refuses the second one; nothing of it may stay behind (the fixture looks), nor harm the first."""
        running = writer.format("noop").queryName("taken").trigger(processingTime="10 seconds").start()
        before = workspaces(spark)
        try:
            with pytest.raises(Exception, match="taken"):
                writer.format("noop").queryName("taken").start()
            assert workspaces(spark) == before
            assert running.isActive
        finally:
            running.stop()


def kept_join(spark: Any, root: Path, name: str = "kept", delay: str = "0 seconds", **join: Any) -> Any:
    flow = Flow(spark, name)
    schema = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())])
    a = flow.readFiles("a", str(root / "a"), eventTime="ts", schema=schema, maxFilesPerTrigger=1, delay=delay)
    b = flow.readFiles("b", str(root / "b"), eventTime="ts", schema=schema)
    return a.join(b, **{"on": "k", "within": "5 seconds", **join})


@pytest.fixture(scope="module")
def written(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of two epochs."""
    root = tmp_path_factory.mktemp("written")
    arrive(root / "a", ticks([1, 2], [0, 1]), ticks([1], [2]))
    arrive(root / "b", ticks([1, 2], [0, 1]))
    joined = kept_join(spark, root)
    options = {"path": root / "out", "checkpointLocation": root / "ck", "partitions": 8, "sites": 2}
    query = joined.writeStream.format("parquet").options(**options).trigger(availableNow=True).start()
    query.awaitTermination()
    assert len(list((root / "ck" / "journal").iterdir())) == 3
    return root


class TestCheckpoint:
    """A checkpoint is continued by the flow that wrote it, or refused and left as it is."""

    def refused(self, joined: Any, ck: Path, message: str, **options: Any) -> None:
        before = fingerprint(ck)
        out = ck.parent / "refused"
        writer = joined.writeStream.format("parquet").options(path=out, checkpointLocation=ck, partitions=8, sites=2)
        with pytest.raises(CheckpointError, match=f"(?s){message}"):
            writer.options(**options).trigger(availableNow=True).start()
        assert fingerprint(ck) == before
        assert not out.exists()

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"name": "other"}, r'another flow: name is "other", the checkpoint has "kept"'),
            (
                {"within": "6 seconds"},
                r"'query-1' would be changed \(it is .* 6 seconds.*, the checkpoint has .* 5 sec",
            ),
            ({"where": "a.v > b.v"}, r"'query-1' would be changed \(it is .*a\.v > b\.v.*, the checkpoint has"),
            ({"on": "v"}, r"'query-1' would be changed \(it is .*\(v\).*, the checkpoint has .*\(k\)"),
            ({"delay": "1 second"}, r"another flow: .*delay is 1000000, the checkpoint has 0"),
        ],
    )
    def test_of_another_flow(self, spark: Any, written: Path, change: dict[str, Any], message: str) -> None:
        self.refused(kept_join(spark, written, **change), written / "ck", message)

    def test_a_path_with_the_results_of_another_query(self, spark: Any, written: Path) -> None:
        before = fingerprint(written)
        writer = kept_join(spark, written).writeStream.format("parquet").options(path=written / "out", sites=2)
        with pytest.raises(FlowError, match=r"out' holds the results of another query.*Give a new path"):
            writer.option("checkpointLocation", written / "new").trigger(availableNow=True).start()
        assert fingerprint(written) == before

    def test_of_other_partitions(self, spark: Any, written: Path) -> None:
        message = r"partitions is 16, the checkpoint has 8.*new checkpointLocation"
        self.refused(kept_join(spark, written), written / "ck", message, partitions=16)

    @pytest.mark.parametrize(
        ("file", "content", "message"),
        [
            ("flow.json", lambda d: json.dumps({**d["content"], "format": 99}), r"has format 99.*reads format \d+"),
            ("flow.json", lambda d: json.dumps(d)[:-20], r"flow\.json is damaged"),
            ("flow.json", lambda d: "", r"flow\.json is damaged"),
            ("flow.json", lambda d: "[]", r"flow\.json is damaged"),
            (
                "flow.json",
                lambda d: json.dumps(d["content"]),
                r"flow\.json is damaged.*checksum",
            ),
            ("journal/000000000002.json", lambda d: json.dumps(d)[:100], r"000000000002\.json is damaged"),
            ("journal/000000000002.json", lambda d: "", r"000000000002\.json is damaged"),
            ("journal/000000000002.json", lambda d: "{}", r"000000000002\.json is damaged"),
            ("journal/000000000002.json", lambda d: json.dumps({**d, "sites": 7}), r"000000000002\.json is damaged"),
            ("journal/notes.json", lambda d: "{}", r"notes\.json"),
        ],
    )
    def test_that_is_damaged_or_newer(
        self, spark: Any, written: Path, tmp_path: Path, file: str, content: Callable[[Any], str], message: str
    ) -> None:
        shutil.copytree(written / "ck", tmp_path / "ck")
        path = tmp_path / "ck" / file
        path.write_text(content(json.loads(path.read_text()) if path.exists() else None))
        self.refused(kept_join(spark, written), tmp_path / "ck", message)

    def test_that_is_somebody_elses_directory(self, spark: Any, written: Path, tmp_path: Path) -> None:
        (tmp_path / "home" / "sub").mkdir(parents=True)
        (tmp_path / "home" / "sub" / "letter.txt").write_text("dear")
        (tmp_path / "home" / "photo.png").write_bytes(b"\x89PNG")
        message = r"checkpointLocation .*home is not empty \(photo\.png, sub.*new directory"
        self.refused(kept_join(spark, written), tmp_path / "home", message)

    def test_that_is_a_file(self, spark: Any, written: Path, tmp_path: Path) -> None:
        path = tmp_path / "file"
        path.write_text("not a directory")
        writer = kept_join(spark, written).writeStream.format("noop").option("checkpointLocation", path)
        with pytest.raises(Exception, match=str(path)):
            writer.start()
        assert path.read_text() == "not a directory"

    def test_without_its_journal(self, spark: Any, written: Path, tmp_path: Path) -> None:
        """The query would begin again with all files, and show their results twice."""
        shutil.copytree(written / "ck", tmp_path / "ck")
        for entry in (tmp_path / "ck" / "journal").iterdir():
            entry.unlink()
        writer = kept_join(spark, written).writeStream.format("noop")
        writer = writer.options(checkpointLocation=tmp_path / "ck", partitions=8, sites=2).trigger(availableNow=True)
        with pytest.raises(Exception, match=r"was deleted or restored"):
            writer.start().awaitTermination()


def test_what_spark_cannot_compute_as_a_stream_begins_with_our_own_sentence(spark: Any, trades: Any) -> None:
    for expression in ("monotonically_increasing_id()", "count(*) OVER (PARTITION BY symbol)"):
        numbered = trades.withColumn("number", expression)
        with pytest.raises(
            FlowError, match=r"^Spark cannot compute as a stream what this flow asks of it.*Exception: "
        ):
            numbered.writeStream.format("noop").start()
