"""Functions of text, and LIKE in its forms."""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from sluice.expressions.builder import Builder
from sluice.expressions.kernels import text
from sluice.expressions.kernels.arrow_numpy import arrow
from sluice.expressions.nodes import Node
from sluice.expressions.parsing import Syntax
from sluice.expressions.signature import UNLIMITED, Arguments, as_text, literal, of_texts, taking
from sluice.expressions.types import BINARY, BOOLEAN, INT, STRING


def length(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    if arguments[0].type == BINARY:
        return build.arrow(at, "binary_length", arguments, INT)
    return build.arrow(at, "utf8_length", [as_text(build, at, arguments[0])], INT)


def trim(build: Builder, at: Syntax, side: str, node: Node, characters: Node | None) -> Node:
    """Text without the given characters (spaces, unless given) at one or both of its ends."""
    strip = " " if characters is None else str(literal(build, at, characters, "the characters to trim"))
    name = {"BOTH": "utf8_trim", "LEADING": "utf8_ltrim", "TRAILING": "utf8_rtrim"}[side]
    kernel = partial(arrow, function=name, characters=strip)
    return build.call(at, kernel, [as_text(build, at, node)], STRING)


def btrim(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    return trim(build, at, "BOTH", arguments[0], arguments[1] if len(arguments) == 2 else None)


def ltrim(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    return trim(build, at, "LEADING", arguments[0], None)


def rtrim(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    return trim(build, at, "TRAILING", arguments[0], None)


def substring(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    bounds = [literal(build, at, node, "the position and length of a substring") for node in arguments[1:]]
    if not all(isinstance(bound, int) for bound in bounds):
        build.source.refuse(at, "the position and length of a substring must be whole numbers")
    kernel = partial(text.slice_text, position=bounds[0], length=bounds[1] if len(bounds) == 2 else None)
    return build.call(at, kernel, [as_text(build, at, arguments[0])], STRING)


def concat(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    return build.call(at, text.joined, [as_text(build, at, node) for node in arguments], STRING)


def replace(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    sought, *other = (str(literal(build, at, node, "what is replaced, and by what,")) for node in arguments[1:])
    kernel = partial(text.replace_text, sought=sought, replacement=other[0] if other else "")
    return build.call(at, kernel, [as_text(build, at, arguments[0])], STRING)


def split_part(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    delimiter, number = (literal(build, at, node, "the delimiter and number of a part") for node in arguments[1:])
    if not isinstance(number, int) or number == 0 or not isinstance(delimiter, str):
        build.source.refuse(at, "split_part takes a text and the number of a part, from 1 on, or from -1 on backwards")
    kernel = partial(text.part_of, delimiter=delimiter, number=number)
    return build.call(at, kernel, [as_text(build, at, arguments[0])], STRING)


def regexp_extract(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    regex, anchored = _read_pattern(build, at, arguments[1])
    group = literal(build, at, arguments[2], "the number of a group") if len(arguments) == 3 else 1
    if anchored:
        build.source.refuse(at, "regexp_extract takes no pattern with '$' here")
    groups = text.count_groups(regex)
    if not isinstance(group, int) or not 0 <= group <= groups:
        build.source.refuse(at, f"the pattern has {groups} groups, and no group {group}")
    kernel = partial(text.extract_group, regex=regex, group=group)
    return build.call(at, kernel, [as_text(build, at, arguments[0])], STRING)


def _read_pattern(build: Builder, at: Syntax, node: Node) -> tuple[str, bool]:
    """A regular expression of Java as one of Arrow, and whether it ends where the text does."""
    pattern = str(literal(build, at, node, "the pattern"))
    try:
        regex, anchored = text.java_regex(pattern)
        pc.match_substring_regex(pa.array([""]), pattern=regex)
    except (text.PatternError, pa.ArrowInvalid) as error:
        build.source.refuse(at, f"the pattern {pattern!r} cannot be used: {error}")
    return regex, anchored


def rlike(build: Builder, at: Syntax, arguments: Arguments) -> Node:
    regex, anchored = _read_pattern(build, at, arguments[1])
    kernel = partial(text.matches, regex=regex, before_line_end=anchored)
    return build.call(at, kernel, [as_text(build, at, arguments[0])], BOOLEAN)


def like(build: Builder, at: Syntax, node: Node, pattern: Node, escape: str, *, any_case: bool) -> Node:
    template = str(literal(build, at, pattern, "the pattern"))
    try:
        function, search_text = text.like_pattern(template.lower() if any_case else template, escape)
    except text.PatternError as error:
        build.source.refuse(at, f"the pattern {template!r} cannot be used: {error}")
    node = as_text(build, at, node)
    if any_case:
        node = build.call(at, partial(text.change_case, upper=False), [node], STRING)
    return build.call(at, partial(text.find_text, function=function, pattern=search_text), [node], BOOLEAN)


TEXTUAL = {
    "length": taking(length, 1),
    "char_length": taking(length, 1),
    "character_length": taking(length, 1),
    "upper": of_texts(partial(text.change_case, upper=True)),
    "ucase": of_texts(partial(text.change_case, upper=True)),
    "lower": of_texts(partial(text.change_case, upper=False)),
    "lcase": of_texts(partial(text.change_case, upper=False)),
    "btrim": taking(btrim, 1, 2),
    "ltrim": taking(ltrim, 1),
    "rtrim": taking(rtrim, 1),
    "substring": taking(substring, 2, 3),
    "substr": taking(substring, 2, 3),
    "concat": taking(concat, 1, UNLIMITED),
    "startswith": of_texts(partial(text.search, function="startswith"), 2, boolean=True),
    "endswith": of_texts(partial(text.search, function="endswith"), 2, boolean=True),
    "contains": of_texts(partial(text.search, function="contains"), 2, boolean=True),
    "replace": taking(replace, 2, 3),
    "split_part": taking(split_part, 3),
    "regexp_extract": taking(regexp_extract, 2, 3),
    "rlike": taking(rlike, 2),
    "regexp": taking(rlike, 2),
    "regexp_like": taking(rlike, 2),
}
