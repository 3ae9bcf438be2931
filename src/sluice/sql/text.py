"""The text of a query: how it is read, how parts of it are written again, and how a place in it is shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from typing import Any, NoReturn

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.errors import ParseError, TokenError

from sluice.expressions.parsing import SparkAsWritten, Syntax, is_interval
from sluice.model.errors import FlowError, SqlError

_QUOTED = re.compile(r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/""", re.DOTALL)
_BEFORE_VALUES = {
    *"+-*/%(,=<>", "<=", ">=", "<>", "!=", "==", "<=>", "||", "AND", "BETWEEN", "CASE", "DISTINCT", "DIV", "ELSE", "IN",
    "LIKE", "NOT", "OR", "SELECT", "THEN", "WHEN",
}  # fmt: skip
_OPENING = re.compile(r"""['"`]|/\*""")


class Text:
    """What the user wrote."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._words: list[tuple[int, str]] = []
        self.has_signs = False
        """Whether a plus stands before a value anywhere, which the tree leaves out."""

    def parse(self) -> Syntax:
        """The syntax tree of the one query in the text."""
        try:
            dialect = SparkAsWritten()
            tokens = dialect.tokenize(self.text)
            self._words = [(token.start, token.text.upper().split(" ")[0]) for token in tokens]
            self.has_signs = any(b.text == "+" and a.text.upper() in _BEFORE_VALUES for a, b in pairwise(tokens))
            for token, following in pairwise(tokens):
                # window(...) and window.start begin no WINDOW clause, as which sqlglot reads the word after GROUP BY
                if token.token_type == TokenType.WINDOW and following.token_type in (TokenType.L_PAREN, TokenType.DOT):
                    token.token_type = TokenType.VAR
            trees = [tree for tree in dialect.parser().parse(tokens, self.text) if tree is not None]
        except TokenError:
            self.refuse(self._find_unclosed(), "what begins here is never closed")
        except ParseError as error:
            detail = error.errors[0]
            lines = self.text.split("\n")[: detail["line"] - 1]
            start = sum(len(line) + 1 for line in lines) + detail["col"] - len(detail["highlight"])
            expected = f" ({detail['description'].lower()})" if detail["description"].startswith("Expecting") else ""
            self.refuse(max(start, 0), f"this cannot be read as Spark SQL{expected}")
        if not trees:
            raise FlowError("sql takes a query, and this text has none")
        if len(trees) > 1:
            self.refuse(self.before("SELECT", trees[1]), "sql takes one query; call it once for each")
        return trees[0]

    def _find_unclosed(self) -> int:
        blanked = _QUOTED.sub(lambda part: " " * len(part[0]), self.text)
        opening = _OPENING.search(blanked)
        return opening.start() if opening else 0

    def place(self, at: Syntax) -> int:
        """Where a part begins, or the nearest part around it that says so."""
        node: Syntax | None = at
        while node is not None:
            starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
            if starts:
                return int(min(starts))
            node = node.parent
        return 0

    @property
    def beginning(self) -> int:
        """Where the first word stands."""
        return self._words[0][0]

    def before(self, word: str, at: Syntax) -> int:
        """Where a word stands that introduces this part; the part's own place if there is no such word."""
        start = self.place(at)
        return max((place for place, text in self._words if text == word and place <= start), default=start)

    def after(self, word: str, at: Syntax) -> int:
        """Where a word stands that follows the beginning of this part."""
        start = self.place(at)
        return min((place for place, text in self._words if text == word and place >= start), default=start)

    def refuse(self, at: Syntax | int, why: str) -> NoReturn:
        raise self.error(at, why)

    def error(self, at: Syntax | int, why: str) -> SqlError:
        start = at if isinstance(at, int) else self.place(at)
        begin = self.text.rfind("\n", 0, start) + 1
        line = self.text[begin:].split("\n", 1)[0].rstrip()
        indent = "".join("\t" if character == "\t" else " " for character in self.text[begin:start])
        number = self.text.count("\n", 0, start) + 1
        return SqlError(f"{why} (line {number}, column {start - begin + 1})\n    {line}\n    {indent}^")

    @contextmanager
    def blame_on(self, at: Syntax | int) -> Iterator[None]:
        """Gives the refusals of the calls made inside a place in the text."""
        try:
            yield
        except SqlError:
            raise
        except FlowError as error:
            raise self.error(at, str(error)) from error

    def write(self, node: Syntax) -> str:
        """An expression as text for the calls, which must read the same as what the user wrote."""
        tree = exp.Paren(this=node.copy())
        for part in list(tree.find_all(exp.Add)):
            # `ts - INTERVAL 1 MINUTE 30 SECONDS` would be written `ts - INTERVAL 1 MINUTE + INTERVAL 30 SECONDS`
            if is_interval(part) and not is_interval(part.parent or tree) and not isinstance(part.parent, exp.Paren):
                part.replace(exp.Paren(this=part.copy()))
        written: str = tree.this.sql(dialect=SparkAsWritten, normalize_functions=False, comments=False)
        try:
            same = essence(sqlglot.parse_one(written, read=SparkAsWritten)) == essence(tree.this)
        except (ParseError, TokenError):
            same = False
        if not same:
            self.refuse(node, "this expression cannot be taken over as it is; write it with plain functions")
        return written


def name_parts(node: Any) -> tuple[exp.Identifier, ...] | None:
    """The parts of a dotted name, unless something else than names is in it."""
    if isinstance(node, exp.Dot):
        before = name_parts(node.this)
        return (*before, node.expression) if before and isinstance(node.expression, exp.Identifier) else None
    parts = node.parts if isinstance(node, exp.Column) else []
    names = tuple(part for part in parts if isinstance(part, exp.Identifier))
    return names if parts and len(names) == len(parts) else None


def essence(node: Any) -> object:
    """What two expressions have in common when they mean the same though they are written differently."""
    names = name_parts(node)
    return [name.name for name in names] if names is not None else essence_of_parts(node, essence)


def essence_of_parts(node: Any, part_of: Callable[[Any], object]) -> object:
    """The kind of an expression, with what stands for each of its parts."""
    if isinstance(node, list):
        return [part_of(part) for part in node]
    if isinstance(node, exp.RawString):
        return part_of(exp.Literal.string(node.name))
    if not isinstance(node, exp.Expression):
        return node
    kind = exp.TryCast if isinstance(node, exp.Cast) else type(node)
    parts = {name: part_of(part) for name, part in node.args.items() if part not in (None, False, [])}
    if isinstance(node, exp.Anonymous):
        parts["this"] = node.name.lower()
    return [kind.__name__, parts]


def column(*names: str) -> Syntax:
    """A column by its name, or by that of its relation and its own."""
    parts = [exp.Identifier(this=name, quoted=not _is_plain(name)) for name in names]
    places = ("this", "table", "db", "catalog")
    tree: Syntax = exp.Column(**dict(zip(places, reversed(parts[:4]), strict=False)))
    for part in parts[4:]:
        tree = exp.Dot(this=tree, expression=part)
    return tree


def copy_place(at: Syntax, node: Syntax) -> Syntax:
    """A part that stands in the text where another one does."""
    first = min((part.meta for part in at.walk() if "start" in part.meta), key=lambda meta: meta["start"], default={})
    for part in node.find_all(exp.Identifier):
        part.meta.update(first)
    return node


def write_name(name: str) -> str:
    """A name as it is written in an expression."""
    return column(name).sql(dialect=SparkAsWritten)


@cache
def _is_plain(name: str) -> bool:
    """Whether a name needs no quotes: it is a word, and none that means something where an expression stands."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        return False
    try:
        return name_parts(sqlglot.parse_one(name, read=SparkAsWritten)) is not None
    except (ParseError, TokenError):
        return False


def replace_parts(node: Syntax, replacement: Callable[[Syntax], Syntax | None]) -> Syntax:
    """A copy in which parts are replaced, from the outside in; what replaces a part is not looked into."""
    new = replacement(node)
    if new is not None:
        return new
    copy = type(node)()
    for name, value in node.args.items():
        if isinstance(value, list):
            copy.set(name, [replace_parts(v, replacement) if isinstance(v, exp.Expression) else v for v in value])
        else:
            copy.set(name, replace_parts(value, replacement) if isinstance(value, exp.Expression) else value)
    copy.meta.update(node.meta)
    return copy
