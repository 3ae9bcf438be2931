"""The `sluice` command: a new project, and running a flow file with every mistake that a file can hold.

No Spark here: the session, the writers and the queries are fakes with the part of their face that `sluice run` uses.
The files, the reports and the projects are real.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from fake_session import FakeSpark

from sluice import CheckpointError, FlowError
from sluice.cli import run as running
from sluice.cli.flow_file import MODULE
from sluice.cli.main import main, setting
from sluice.cli.run import Run, run

GOOD = "def define(spark):\n    return spark.writer()\n"


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> FakeSpark:
    """The session that `sluice run` gets."""
    fake = FakeSpark()

    def session(wanted: Run, scratch: str) -> FakeSpark:
        fake.scratch = scratch
        return fake

    monkeypatch.setattr(running, "_session", session)
    return fake


@pytest.fixture
def flow(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        (tmp_path / "flow.py").write_text(text, encoding="utf-8")
        return str(tmp_path / "flow.py")

    return write


class TestRun:
    def test_it_runs_what_the_file_defines_and_leaves_nothing(
        self, spark: FakeSpark, flow: Callable[[str], str], tmp_path: Path
    ) -> None:
        file, path = flow(GOOD), list(sys.path)
        assert main(["run", file]) == 0
        (writer,) = spark.writers
        assert writer.query is not None and spark.stopped
        assert (writer.policies, writer.triggers, writer._options) == ([], [], {})  # the file's own choices stay
        assert sys.path == path and MODULE not in sys.modules
        assert not os.path.exists(spark.scratch)
        assert os.listdir(tmp_path) == ["flow.py"]

    def test_the_command_line_wins(self, spark: FakeSpark, flow: Callable[[str], str], tmp_path: Path) -> None:
        file = flow("def define(spark):\n    return spark.writer().option('checkpointLocation', 'files/own')\n")
        checkpoint = str(tmp_path / "ck")
        assert main(["run", file, "--policy", "static", "--available-now", "--checkpoint", checkpoint]) == 0
        (writer,) = spark.writers
        assert writer._options == {"checkpointLocation": checkpoint}
        assert writer.policies == ["static"] and writer.triggers == [{"availableNow": True}]

    def test_several_queries_get_a_checkpoint_each(
        self, spark: FakeSpark, flow: Callable[[str], str], tmp_path: Path
    ) -> None:
        file = flow("def define(spark):\n    return [spark.writer('bars'), spark.writer(), spark.writer('../a b')]\n")
        assert main(["run", file, "--checkpoint", f"{tmp_path}/ck/", "--report", f"{tmp_path}/r.html"]) == 0
        given = [w._options["checkpointLocation"] for w in spark.writers]
        assert given == [f"{tmp_path}/ck/bars", f"{tmp_path}/ck/query-2", f"{tmp_path}/ck/_a_b"]
        assert sorted(p.name for p in tmp_path.glob("*.html")) == ["r-_a_b.html", "r-bars.html", "r-query-2.html"]

    def test_two_queries_of_one_name_are_refused(
        self, spark: FakeSpark, flow: Callable[[str], str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["run", flow("def define(spark):\n    return [spark.writer('a'), spark.writer('a')]\n")]) == 2
        assert "two queries are called 'a'" in capsys.readouterr().err
        assert all(w.query is None for w in spark.writers) and spark.stopped

    def test_arguments_after_the_dashes_are_the_flows(self, spark: FakeSpark, flow: Callable[[str], str]) -> None:
        file = flow("def define(spark, args):\n    return spark.writer(' '.join(args))\n")
        assert main(["run", file, "--available-now", "--", "--symbols", "3", "--"]) == 0
        assert spark.writers[0]._name == "--symbols 3 --"
        assert main(["run", file]) == 0
        assert spark.writers[1]._name == ""

    def test_a_setting_of_define_itself_is_left_alone(self, spark: FakeSpark, flow: Callable[[str], str]) -> None:
        assert main(["run", flow("def define(spark, files=10):\n    return spark.writer(str(files))\n")]) == 0
        assert spark.writers[0]._name == "10"

    def test_the_file_is_like_a_script(self, spark: FakeSpark, flow: Callable[[str], str], tmp_path: Path) -> None:
        (tmp_path / "beside.py").write_text("NAME = 'beside'\n")
        file = flow(
            "from __future__ import annotations\nimport os\nfrom dataclasses import dataclass\nimport beside\n\n"
            "@dataclass\nclass Choice:\n    name: str\n\n"
            "def define(spark):\n    return spark.writer(Choice(beside.NAME + os.path.basename(__file__)).name)\n\n"
            "if __name__ == '__main__':\n    raise SystemExit('not when it is run by sluice')\n"
        )
        try:
            assert main(["run", file]) == 0
        finally:
            sys.modules.pop("beside", None)
        assert spark.writers[0]._name == "besideflow.py"

    def test_a_report_without_a_checkpoint(self, spark: FakeSpark, flow: Callable[[str], str], tmp_path: Path) -> None:
        assert main(["run", flow(GOOD), "--report", str(tmp_path / "r.html")]) == 0
        assert "<title>desk" in (tmp_path / "r.html").read_text()
        assert spark.writers[0]._options["checkpointLocation"].startswith(spark.scratch)
        assert not os.path.exists(spark.scratch)

    def test_on_a_cluster_a_checkpoint_is_not_made_up(
        self, spark: FakeSpark, flow: Callable[[str], str], tmp_path: Path
    ) -> None:
        spark.sparkContext.master = "yarn"
        assert main(["run", flow(GOOD), "--report", str(tmp_path / "r.html")]) == 0
        assert "checkpointLocation" not in spark.writers[0]._options

    def test_being_terminated_is_a_clean_end(self, spark: FakeSpark, flow: Callable[[str], str]) -> None:
        before = signal.getsignal(signal.SIGTERM)
        file = flow("import os, signal\ndef define(spark):\n    os.kill(os.getpid(), signal.SIGTERM)\n")
        assert main(["run", file]) == 1
        assert spark.stopped and signal.getsignal(signal.SIGTERM) is before


class TestFailing:
    def test_a_query_that_fails(
        self, spark: FakeSpark, flow: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        text = "no space left\\n=== Streaming Query ===\\nIdentifier: long\\n\\tat org.apache"
        file = flow(f"def define(spark):\n    return [spark.writer('a'), spark.writer('b', RuntimeError('{text}'))]\n")
        assert main(["run", file, "--report", str(tmp_path / "r.html")]) == 1
        told = capsys.readouterr().err
        assert "a query failed: RuntimeError: no space left\n" in told and "Identifier" not in told
        assert all(w.query is not None and w.query.stopped for w in spark.writers) and spark.stopped
        assert (tmp_path / "r-b.html").exists()  # how far it came is worth a look

    @pytest.mark.parametrize(
        ("problem", "told"),
        [
            (CheckpointError("checkpoint ck belongs to another flow"), "sluice: checkpoint ck belongs to another flow"),
            (RuntimeError("odd"), "query 'query-2' cannot start: RuntimeError: odd"),
        ],
    )
    def test_a_query_that_is_refused_stops_those_before_it(
        self,
        spark: FakeSpark,
        flow: Callable[[str], str],
        capsys: pytest.CaptureFixture[str],
        problem: Exception,
        told: str,
    ) -> None:
        spark.problem = problem  # type: ignore[attr-defined]
        file = flow("def define(spark):\n    return [spark.writer(), spark.writer(refuses=spark.problem)]\n")
        assert main(["run", file]) == 2
        assert told in capsys.readouterr().err
        assert spark.writers[0].query is not None and spark.writers[0].query.stopped and spark.stopped

    def test_ctrl_c_ends_it_well(self, spark: FakeSpark, flow: Callable[[str], str]) -> None:
        assert main(["run", flow("def define(spark):\n    return spark.writer(fails=KeyboardInterrupt())\n")]) == 0
        assert spark.writers[0].query is not None and spark.writers[0].query.stopped and spark.stopped


class TestMistakes:
    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("def define(spark)\n    pass\n", ["flow.py, line 1: expected ':'", "  def define(spark)\n", "^"]),
            ("x = 1\n\0", ["flow.py"]),
            ("x = 1\n", ["flow.py defines no function define(spark)"]),
            ("define = 3\n", ["defines no function define(spark)"]),
            ("def define():\n    pass\n", ["must take spark, or spark and args; it takes 0"]),
            ("def define(a, b, c):\n    pass\n", ["it takes 3 arguments"]),
            ("def define(spark):\n    pass\n", ["define() returned nothing; return for example"]),
            ("def define(spark):\n    return []\n", ["define() returned an empty list"]),
            ("def define(spark):\n    return spark.writer().start()\n", ["runs already; leave out .start()"]),
            ("def define(spark):\n    return [spark.writer(), 'out']\n", ["returned str 'out', not a writeStream"]),
            (
                "class Stream:\n    writeStream = None\n    __repr__ = lambda s: 'Stream(a)'\n"
                "def define(spark):\n    return Stream()\n",
                ["define() returned Stream(a); say where its results go: add .writeStream"],
            ),
            ("import nothing_like_it\n", ["line 1, in <module>", "import nothing_like_it", "ModuleNotFoundError"]),
            (
                "def inner(spark):\n    return spark.missing\n\ndef define(spark):\n    return inner(spark)\n",
                ["line 5, in define\n    return inner(spark)", "line 2, in inner", "AttributeError", "missing"],
            ),
            (
                "from sluice.policies import policy\ndef define(spark):\n    policy('lucky')\n",
                ["line 3, in define\n    policy('lucky')\nthere is no policy 'lucky'"],
            ),
        ],
    )
    def test_in_the_file(
        self,
        spark: FakeSpark,
        flow: Callable[[str], str],
        capsys: pytest.CaptureFixture[str],
        text: str,
        told: list[str],
    ) -> None:
        assert main(["run", flow(text)]) == 2
        said = capsys.readouterr().err
        for part in told:
            assert part in said
        assert "Traceback" not in said and "src/sluice" not in said
        assert MODULE not in sys.modules

    def test_spark_is_not_started_for_a_file_that_cannot_run(self, tmp_path: Path, flow: Callable[[str], str]) -> None:
        def never(wanted: Run, scratch: str) -> Any:
            raise AssertionError("Spark was started")

        (tmp_path / "empty.py").write_text("x = 1\n")
        for wanted in (
            Run(str(tmp_path / "none.py")),
            Run(str(tmp_path)),
            Run(str(tmp_path / "empty.py")),
            Run(flow(GOOD), policy="lucky"),
            Run(flow(GOOD), arguments=("3",)),
            Run(flow(GOOD), report=str(tmp_path / "nowhere" / "r.html")),
        ):
            with pytest.raises(FlowError):
                run(wanted, never)

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            (["{dir}/none.py"], "there is no file {dir}/none.py"),
            (["{dir}"], "{dir} is a directory; give the file in it"),
            (["{dir}/flow.py", "--policy", "lucky"], "there is no policy 'lucky'; known: "),
            (
                ["{dir}/flow.py", "--", "3"],
                "arguments were given after --, but define(spark) in {dir}/flow.py takes none",
            ),
            (["{dir}/flow.py", "--report", "{dir}/no/r.html"], "there is no directory for the report {dir}/no/r.html"),
        ],
    )
    def test_on_the_command_line(
        self,
        flow: Callable[[str], str],
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        arguments: list[str],
        told: str,
    ) -> None:
        flow(GOOD)
        assert main(["run", *(a.format(dir=tmp_path) for a in arguments)]) == 2
        assert f"sluice: {told.format(dir=tmp_path)}" in capsys.readouterr().err

    @pytest.mark.parametrize("wrong", ["spark.executor.memory", "executor.memory=2g", "=2g", ""])
    def test_a_setting_that_is_none(
        self, flow: Callable[[str], str], capsys: pytest.CaptureFixture[str], wrong: str
    ) -> None:
        with pytest.raises(SystemExit) as ended:
            main(["run", flow(GOOD), "--conf", wrong])
        assert ended.value.code == 2
        assert f"{wrong!r} is not a Spark setting" in capsys.readouterr().err

    def test_settings_may_hold_equals_signs(self, flow: Callable[[str], str]) -> None:
        assert setting("spark.driver.extraJavaOptions=-Da=b") == ("spark.driver.extraJavaOptions", "-Da=b")


class TestNew:
    def test_the_project_makes_its_data(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        home = tmp_path / "deep" / "desk"
        assert main(["new", str(home)]) == 0
        assert "sluice run flow.py" in capsys.readouterr().out
        assert sorted(os.listdir(home)) == [".gitignore", "README.md", "flow.py", "make_data.py", "test_flow.py"]
        assert (home / "README.md").read_text().startswith("# desk\n")
        make = [sys.executable, "make_data.py", "--files", "2"]
        for _ in range(2):  # the second run goes on where the first ended
            subprocess.run(make, cwd=home, check=True, capture_output=True)
        assert sorted(os.listdir(home / "data" / "trades")) == [f"{n:05d}.parquet" for n in range(4)]
        trades, quotes = (pq.read_table(home / "data" / stream) for stream in ("trades", "quotes"))
        assert trades.schema.names == ["symbol", "ts", "price", "size"]
        assert quotes.schema.names == ["symbol", "ts", "bid", "ask"]
        assert str(trades.schema.field("ts").type) == "timestamp[us, tz=UTC]"

    def test_the_flow_says_what_it_should(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """`Flow` is a fake that records: the flow's own run needs Spark."""
        assert main(["new", str(tmp_path / "desk")]) == 0
        calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

        class Recorded:
            def __init__(self, *given: Any, **named: Any) -> None: ...

            def __getattr__(self, name: str) -> Any:
                def call(*given: Any, **named: Any) -> Recorded:
                    calls.append((name, given, named))
                    return self

                return self if name == "writeStream" else call

        monkeypatch.setattr("sluice.Flow", Recorded, raising=False)
        spec = importlib.util.spec_from_file_location("desk_flow", tmp_path / "desk" / "flow.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        assert isinstance(module.define(None), Recorded)
        said = {name: (given, named) for name, given, named in calls}
        assert said["join"][1] == {"on": "symbol", "within": "10 seconds"}
        assert said["groupBy"][0] == ("symbol",) and said["window"][0] == ("1 minute",)
        assert said["agg"][1]["pairs"] == ("*", "count")
        assert "start" not in said
        assert [c[1][1] for c in calls if c[0] == "readFiles"] == [
            str(tmp_path / "desk" / "data" / stream) for stream in ("trades", "quotes")
        ]

    def test_nothing_is_overwritten(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "mine.txt").write_text("mine")
        assert main(["new", str(tmp_path)]) == 2
        assert f"{tmp_path} is not empty (mine.txt)" in capsys.readouterr().err
        assert os.listdir(tmp_path) == ["mine.txt"]
        assert main(["new", str(tmp_path / "mine.txt")]) == 2
        assert "is a file" in capsys.readouterr().err

    def test_an_empty_directory_will_do(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert main(["new", "."]) == 0
        assert (tmp_path / "flow.py").exists()

    def test_a_place_that_cannot_be_written_is_named(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["new", "/proc/desk"]) == 2
        assert "cannot write the project to /proc/desk" in capsys.readouterr().err


def test_looking_at_a_checkpoint_does_not_load_spark() -> None:
    script = "import sys; from sluice.cli.main import main; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
