"""Kernels on text, and the translation of Spark's patterns to the regular expressions Arrow runs (RE2)."""

from __future__ import annotations

import re
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.expressions.kernels.arrow_numpy import align, rebuilt, valid
from sluice.expressions.nodes import Datum

_LINE_END = r"\n\r\x{85}\x{2028}\x{2029}"  # what Java's `.` does not match
_QUANTIFIER = re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\})\??")


_ARROW_SEARCH = {"startswith": "starts_with", "endswith": "ends_with", "contains": "match_substring"}


class PatternError(ValueError):
    """The pattern is wrong, or means something in Java's regular expressions that RE2 cannot say."""


def like_pattern(pattern: str, escape: str) -> tuple[str, str]:
    """A LIKE pattern as one of Arrow's ways to search and what to search for.

    >>> like_pattern("ab%", "!"), like_pattern("a_c%", "!")
    (('starts_with', 'ab'), ('match_substring_regex', '(?s)\\\\Aa.c.*\\\\z'))
    """
    pieces: list[str] = []
    plain, shape, rest = "", "", iter(pattern)
    for character in rest:
        if character == escape:
            following = next(rest, None)
            if following is None or following not in ("%", "_", escape):
                raise PatternError(f"the escape character {escape!r} must precede '%', '_' or itself")
            character = following
        elif character in "%_":
            pieces.append(".*" if character == "%" else ".")
            shape += character
            continue
        pieces.append(_quote(character))
        plain += character
        shape += "" if shape.endswith("x") else "x"
    simple = {"x%": "starts_with", "%x": "ends_with", "%x%": "match_substring", "x": "equal"}
    if shape in simple:
        return simple[shape], plain
    return "match_substring_regex", rf"(?s)\A{''.join(pieces)}\z"


def _quote(character: str) -> str:
    return character if character.isalnum() else f"\\x{{{ord(character):x}}}"


def java_regex(pattern: str) -> tuple[str, bool]:
    """A Java regular expression for RE2, and whether it ends in `$`, which Java also matches before a line's end.

    Only what both understand alike is let through.
    """
    at, depth, result, anchored = 0, 0, [], False
    while at < len(pattern):
        character = pattern[at]
        if character == "\\":
            piece, at = _read_escape(pattern, at)
            result.append(piece)
        elif character == "[":
            piece, at = _character_class(pattern, at)
            result.append(piece)
        elif character in "*+?{":
            match = _QUANTIFIER.match(pattern, at)
            if match is None or not result or result[-1] in ("(", "(?:", "|", r"\A"):
                raise PatternError(f"'{pattern[at:]}' does not repeat anything")
            if _QUANTIFIER.match(pattern, match.end()):
                raise PatternError(f"'{match[0]}' cannot be followed by another repetition")
            result.append(match[0])
            at = match.end()
        elif character == "(":
            opening = "(?:" if pattern.startswith("(?:", at) else "("
            if opening == "(" and pattern.startswith("(?", at):
                raise PatternError(f"'{pattern[at : at + 3]}' is not available; plain groups are")
            result.append(opening)
            at, depth = at + len(opening), depth + 1
        elif character == "$":
            if depth or pattern[at + 1 :][:1] not in ("", "|"):
                raise PatternError("'$' is available only at the end of the pattern")
            result.append(r"\z")
            anchored, at = True, at + 1
        else:
            depth -= character == ")"
            result.append({".": f"[^{_LINE_END}]", "^": r"\A"}.get(character, character))
            at += 1
        if depth < 0:
            break
    if depth:
        raise PatternError("its parentheses do not match")
    return "".join(result), anchored


def _read_escape(pattern: str, at: int) -> tuple[str, int]:
    following = pattern[at + 1 : at + 2]
    ranges = {"s": r"[ \t\n\x0B\f\r]", "S": r"[^ \t\n\x0B\f\r]"}  # RE2's own \s leaves out the vertical tab
    if following in ranges:
        return ranges[following], at + 2
    if following and (following in "dDwWtnrf" or (following.isascii() and not following.isalnum())):
        return "\\" + following, at + 2
    raise PatternError(f"'\\{following}' is not available")


def _character_class(pattern: str, at: int) -> tuple[str, int]:
    end = at + 1 + pattern.startswith("^", at + 1)
    result = [pattern[at:end]]
    if pattern.startswith("]", end):
        raise PatternError("a ']' inside brackets must be written '\\]'")
    while not pattern.startswith("]", end):
        character = pattern[end : end + 1]
        if not character:
            raise PatternError("a '[' is not closed")
        if character == "[" or pattern.startswith("&&", end):
            raise PatternError("brackets within brackets are not available")
        if character == "\\":
            piece, end = _read_escape(pattern, end)
            if piece.startswith("[^"):
                raise PatternError("'\\S' inside brackets is not available")
            result.append(piece.strip("[]") if len(piece) > 2 else piece)
        else:
            result.append(character)
            end += 1
    return "".join(result) + "]", end + 1


def matches(texts: pa.Array, *, regex: str, before_line_end: bool = False) -> Datum:
    """Whether the regular expression is found; also in the text without its last line end, where `$` asks for it."""
    matched = pc.match_substring_regex(texts, pattern=regex)
    if not before_line_end:
        return matched
    shorter = pc.replace_substring_regex(texts, pattern=rf"(?:\r\n|[{_LINE_END}])\z", replacement="")
    return pc.or_(matched, pc.match_substring_regex(shorter, pattern=regex))


_GROUPS = re.compile(r"\\.|\[(?:\\.|[^\]])*\]|\((?!\?)")
"""Where groups begin in a regular expression for RE2, and what only looks like it."""


def count_groups(regex: str) -> int:
    """The groups of a regular expression that can be asked for, which are those that begin with a plain parenthesis."""
    return _GROUPS.findall(regex).count("(")


def extract_group(texts: pa.Array, *, regex: str, group: int) -> pa.Array:
    """A group of the first place where a regular expression is found; an empty text where it is not."""
    found = pc.struct_field(pc.extract_regex(texts, pattern=_with_one_group(regex, group)), 0)
    return pc.if_else(pc.is_valid(texts), pc.fill_null(found, ""), texts)


def _with_one_group(regex: str, wanted: int) -> str:
    """A regular expression that captures one group alone, which takes RE2 far less time than all.

    >>> _with_one_group("(a|[(])(b)", 2), _with_one_group("(a)", 0)
    ('(?:a|[(])(?P<wanted>b)', '(?P<wanted>(?:a))')
    """
    numbers = count(1)

    def opening(found: re.Match[str]) -> str:
        if found[0] != "(":
            return found[0]
        return "(?P<wanted>" if next(numbers) == wanted else "(?:"

    one_group = _GROUPS.sub(opening, regex)
    return one_group if wanted else f"(?P<wanted>{one_group})"


def replace_text(texts: pa.Array, *, sought: str, replacement: str) -> pa.Array:
    """Every place of a text replaced by another; Spark finds an empty text nowhere."""
    return pc.replace_substring(texts, pattern=sought, replacement=replacement) if sought else texts


def part_of(texts: pa.Array, *, delimiter: str, number: int) -> pa.Array:
    """A part between delimiters, counted from 1 or backwards from -1; an empty text where there are not so many."""
    if not delimiter:  # the text is one part
        return texts if number in (1, -1) else pc.if_else(pc.is_valid(texts), "", texts)
    parts = pc.split_pattern(texts, pattern=delimiter)
    offsets = parts.offsets.to_numpy()
    places = offsets[:-1] + number - 1 if number > 0 else offsets[1:] + number
    there = (places >= offsets[:-1]) & (places < offsets[1:])
    taken = parts.values.take(pa.array(places, mask=~there))
    return pc.if_else(pc.is_valid(texts), pc.fill_null(taken, ""), pa.scalar(None, pa.string()))


def change_case(texts: pa.Array, *, upper: bool) -> pa.Array:
    """Upper or lower case with Unicode's full rules ('ß' becomes 'SS'), which Arrow knows only for ASCII."""
    plain = pc.ascii_upper(texts) if upper else pc.ascii_lower(texts)
    if pc.all(pc.string_is_ascii(texts)).as_py() is not False:
        return plain
    distinct = texts.dictionary_encode()
    changed = [text.upper() if upper else text.lower() for text in distinct.dictionary.to_pylist()]
    return pa.array(changed, pa.string()).take(distinct.indices)


def slice_text(texts: pa.Array, *, position: int, length: int | None) -> pa.Array:
    """Spark's substring: counts from 1, or from the end when negative."""
    start = position - 1 if position > 0 else position
    if length is not None and length <= 0:
        return pc.utf8_slice_codeunits(texts, start=0, stop=0)
    stop = None if length is None or (start < 0 <= start + length) else start + length
    return pc.utf8_slice_codeunits(texts, start=start, stop=stop)


def find_text(texts: pa.Array, *, function: str, pattern: str) -> pa.Array:
    if function == "equal":
        return pc.equal(texts, pattern)
    return getattr(pc, function)(texts, pattern=pattern)


def search(texts: Datum, patterns: Datum, *, function: str) -> pa.Array:
    """Whether each text starts with, ends with or contains the pattern of its row."""
    if isinstance(patterns, pa.Scalar) and patterns.is_valid:
        return find_text(texts, function=_ARROW_SEARCH[function], pattern=patterns.as_py())
    texts, patterns = align(texts, patterns)
    present = valid(texts, patterns)
    left, right = (np.where(present, a.to_numpy(zero_copy_only=False), "") for a in (texts, patterns))
    kind: Any = np.dtypes.StringDType()
    left, right = left.astype(kind), right.astype(kind)
    if function == "contains":
        return rebuilt(np.strings.find(left, right) >= 0, present, pa.bool_())
    return rebuilt(getattr(np.strings, function)(left, right), present, pa.bool_())


def joined(*texts: Datum) -> Datum:
    return pc.binary_join_element_wise(*texts, pa.scalar("", pa.string()), null_handling="emit_null")
