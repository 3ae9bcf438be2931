"""The documentation is true: its Python and SQL run as they stand, its commands exist, and its links lead somewhere.

The Python blocks of a page run in order, in one namespace and in an empty directory of the page's own. Between them,
in their place, runs what readers do not see: comments that begin with `<!-- setup` or `<!-- check`. SQL goes through
the `flow` that the page has by then. A block marked `raises=FlowError` must raise it, and if a `text` block follows,
that is the message.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.readwriter import DataFrameReader

import sluice
from scripts import options_page
from sluice.cli import main as cli
from sluice.sources.listing_options import SPARK_FILE_OPTIONS
from sluice.spark.starting import active_queries

ROOT = Path(__file__).parents[2]
OF_THE_ROOT = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
PAGES = [*(ROOT / page for page in OF_THE_ROOT), *sorted((ROOT / "docs").rglob("*.md"))]
NAVIGATION = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")

RUN = ("python", "sql", "bash")
SHOWN = ("", "text", "yaml", "shell")
"""Fences of what is not run: output, diagrams, and what needs a cluster."""
HIDDEN = ("<!-- setup", "<!-- check")
OTHER_COMMANDS = ("cd", "source", "git", "python", "export", "df", "ls", "rm")
WITHOUT_SPARK = ("new", "inspect", "metrics", "report", "top")
"""Subcommands of `sluice` that are quick enough to be run for good where their directory is there."""


@dataclass(frozen=True)
class Block:
    """A piece of a page, with the line its text begins at."""

    kind: str
    text: str
    line: int
    raises: str | None = None


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    """All fenced blocks and hidden comments of a page, in order."""
    found: list[Block] = []
    lines = iter(enumerate(page.read_text(encoding="utf-8").splitlines(), 1))
    for number, line in lines:
        fence = re.fullmatch(r"\s*```(\w*)(?:\s+raises=(\w+))?\s*", line)
        if fence:
            text = _until(lines, "```", page, number)
            found.append(Block(fence[1], text, number + 1, fence[2]))
        elif line.lstrip().startswith("```"):
            pytest.fail(f"{name(page)}:{number}: what is {line.strip()!r}?")
        elif line.startswith(HIDDEN):
            found.append(Block("hidden", _until(lines, "-->", page, number), number + 1))
    return found


def _until(lines: Iterator[tuple[int, str]], end: str, page: Path, begun: int) -> str:
    text: list[str] = []
    for _, line in lines:
        if line.strip() == end:
            return textwrap.dedent("\n".join(text))
        text.append(line)
    pytest.fail(f"{name(page)}:{begun}: this block has no end")


def commands(text: str) -> list[list[str]]:
    """The commands of a block, each as its words."""
    out: list[list[str]] = []
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while "&&" in words:
            out.append(words[: words.index("&&")])
            words = words[words.index("&&") + 1 :]
        out.append(words)
    return [words for words in out if words]


def check_command(words: list[str], where: str) -> None:
    """See that what a command names is there: the target, the subcommand, its options."""
    command, arguments = words[0], words[1:]
    if command == "make":
        targets = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)
        for word in arguments:
            assert "=" in word or word in targets, f"{where}: there is no target {word!r} in the Makefile"
    elif command == "sluice":
        given, _ = cli._divided(arguments)
        try:
            cli._parser().parse_args(given)
        except SystemExit as ended:
            if ended.code:
                pytest.fail(f"{where}: sluice does not take {shlex.join(arguments)}")
    else:
        assert command in OTHER_COMMANDS, f"{where}: who knows the command {command!r}?"


class PageRun:
    """One page being run, in the current directory."""

    def __init__(self, page: Path, spark: Any) -> None:
        self.page, self.blocks = page, blocks(page)
        self.here = Path()
        self.namespace: dict[str, Any] = {"__name__": "__docs__", "spark": spark}

    def run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for number, block in enumerate(self.blocks):
            if block.kind in ("python", "sql", "hidden"):
                self._code(block, self.blocks[number + 1 : number + 2])
            elif block.kind == "bash":
                self._commands(block, monkeypatch)

    def _code(self, block: Block, following: list[Block]) -> None:
        run = self._sql if block.kind == "sql" else self._python
        if block.raises is None:
            run(block)
            return
        with pytest.raises(getattr(sluice, block.raises)) as problem:
            run(block)
        if following and following[0].kind == "text":
            assert str(problem.value).strip() == following[0].text.strip(), f"{name(self.page)}:{following[0].line}"

    def _python(self, block: Block) -> None:
        code = "\n" * (block.line - 1) + block.text  # so that errors show the page's line
        exec(compile(code, name(self.page), "exec"), self.namespace)

    def _sql(self, block: Block) -> None:
        flow = self.namespace.get("flow")
        assert flow is not None, f"{name(self.page)}:{block.line}: make a flow first, or in a comment <!-- setup"
        assert flow.sql(block.text).columns

    def _commands(self, block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
        """Run what needs no Spark, and see that the files of the others are there, if their directory is. A reader who
        went into one stays there."""
        home = Path.cwd()
        monkeypatch.chdir(home / self.here)
        for words in commands(block.text):
            if words[0] == "cd" and Path(words[1]).is_dir():
                self.here = self.here / words[1]
                monkeypatch.chdir(home / self.here)
            elif words[:2] == ["sluice", "ui"]:
                assert Path(words[2]).parent.is_dir(), f"{name(self.page)}:{block.line}: there is no {words[2]} here"
            elif words[0] == "sluice" and words[1] in WITHOUT_SPARK:
                if words[1] == "new" or words[2].startswith("--") or Path(words[2]).is_dir():
                    ending = ["--once"] if words[1] == "top" else []
                    assert cli.main([*words[1:], *ending]) == 0, f"{name(self.page)}:{block.line}"
            elif self.here.parts and words[0] in ("sluice", "python"):
                file = next(w for w in words if w.endswith(".py"))
                assert Path(file).is_file(), f"{name(self.page)}:{block.line}: there is no {file}"
        monkeypatch.chdir(home)


@pytest.fixture
def at_home(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The page's own directory is the current one, for Python and for the JVM, which else stays where it started."""
    hadoop = spark.sparkContext._jvm.org.apache.hadoop.fs
    files = hadoop.FileSystem.get(spark.sparkContext._jsc.hadoopConfiguration())
    before = files.getWorkingDirectory()
    files.setWorkingDirectory(hadoop.Path(str(tmp_path)))
    monkeypatch.chdir(tmp_path)
    parquet = DataFrameReader.parquet  # it looks for the sink's list of files by another way, without that directory
    monkeypatch.setattr(
        DataFrameReader,
        "parquet",
        lambda reader, *paths: parquet(reader, *(p if ":" in p else os.path.abspath(p) for p in paths)),
    )
    yield
    files.setWorkingDirectory(before)


@pytest.fixture
def ending(spark: Any, at_home: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pages may wait for the end of a query that has none, and may leave queries running: here these end, too."""
    from pyspark.sql import SparkSession

    from sluice.api.query import Query

    wait = Query.awaitTermination

    def wait_for_all_there_is(query: Query, timeout: float | None = None) -> bool | None:
        if timeout is not None or "availableNow" in query._running.trigger:
            return wait(query, timeout)
        query.processAllAvailable()
        if not wait(query, 0.1):
            query.stop()
        return None

    monkeypatch.setattr(Query, "awaitTermination", wait_for_all_there_is)
    monkeypatch.setattr(SparkSession, "stop", lambda session: None)
    yield
    for running in active_queries():
        try:
            running.process_all()
        finally:
            running.stop()


@pytest.mark.spark
@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_runs(page: Path, spark: Any, ending: None, monkeypatch: pytest.MonkeyPatch) -> None:
    PageRun(page, spark).run(monkeypatch)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_blocks_are_of_a_kind_that_is_looked_at(page: Path) -> None:
    for block in blocks(page):
        assert block.kind in (*RUN, *SHOWN, "hidden"), f"{name(page)}:{block.line}: {block.kind!r} blocks are not run"
        assert block.raises is None or issubclass(getattr(sluice, block.raises), Exception)
        if block.kind in ("python", "hidden"):
            compile(block.text, f"{name(page)}:{block.line}", "exec")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_exist(page: Path) -> None:
    for block in blocks(page):
        if block.kind == "bash":
            for words in commands(block.text):
                check_command(words, f"{name(page)}:{block.line}")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in links(page):
        path, _, heading = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{name(page)} links to {target}, which is not there"
        if heading:
            assert heading in headings(there), f"{name(page)} links to {target}: no such heading"


def test_every_page_is_in_the_navigation() -> None:
    listed = {(ROOT / "docs" / page).resolve() for page in re.findall(r"(\S+\.md)$", NAVIGATION, re.MULTILINE)}
    missing = [name(page) for page in PAGES if page.parts[len(ROOT.parts)] == "docs" and page not in listed]
    assert not missing


def test_the_search_finds_a_name_within_a_call() -> None:
    (separator,) = re.findall(r"separator: '(.+)'", NAVIGATION)
    assert {"readState", "ck"} <= set(re.split(separator, 'sluice.readState("ck")'))


def test_the_options_are_those_of_the_code() -> None:
    written = options_page.PAGE.read_text(encoding="utf-8")
    assert written == options_page.write_tables(written), "the page is old; run python scripts/options_page.py"
    for name in SPARK_FILE_OPTIONS:
        assert f"`{name}`" in written


def links(page: Path) -> list[str]:
    """Targets of the page's links to other pages and places."""
    found = re.findall(r"\[[^\]\n]+\]\(([^)\s]+)\)", _prose(page))
    return [target for target in found if "://" not in target]


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    texts = re.findall(r"^#+ (.*)$", _prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-") for text in texts}


def _prose(page: Path) -> str:
    """The page without its blocks and without code inside lines that looks like a link."""
    text = re.sub(r"^\s*```.*?^\s*```\s*$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)


def test_quoted_messages_are_those_of_the_code() -> None:
    """In the page on troubleshooting, quotations are messages, with … for what differs from case to case."""
    known = {text for file in (ROOT / "src").rglob("*.py") for text in messages(file)}
    for quoted in re.findall(r"^> (.*)$", (ROOT / "docs" / "how-to" / "troubleshooting.md").read_text(), re.MULTILINE):
        parts = [part.strip() for part in quoted.split("…")]
        assert any(follow_each_other(parts, text) for text in known), f"no such message in the code: {quoted}"


def follow_each_other(parts: list[str], text: str) -> bool:
    """Whether a text has all of these, in this order."""
    end = 0
    for part in parts:
        begin = text.find(part, end)
        if begin < 0:
            return False
        end = begin + len(part)
    return True


def messages(file: Path) -> Iterator[str]:
    """The texts in a module, with … in place of the values that are put in."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr | ast.Constant | ast.BinOp):
            yield _as_text(node)


def _as_text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_as_text, node.values))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _as_text(node.left) + _as_text(node.right)
    return "…"
