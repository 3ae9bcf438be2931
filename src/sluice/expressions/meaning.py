"""What a text means, whatever spaces, capitals and names of streams it is written with."""

from __future__ import annotations

import re
from collections.abc import Sequence

_TOKEN = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`|[\w.]+|<=>|<=|>=|<>|!=|==|\|\||\S""", re.DOTALL
)


def canonical_text(text: str, columns: Sequence[tuple[int, int, str]]) -> str:
    """A text's tokens with one space between them, in small letters but for what stands in quotes, each column by its
    own name. `columns` says where they stand.

    >>> canonical_text("T.price  >3 AND t.kind = 'A'", [(0, 7, "price"), (16, 22, "kind")])
    "`price` > 3 and `kind` = 'A'"
    """
    pieces, done = [], 0
    for start, end, column in sorted(columns):
        pieces += _tokens(text[done:start])
        pieces.append(f"`{column.replace('`', '``')}`")
        done = end
    return " ".join([*pieces, *_tokens(text[done:])])


def _tokens(text: str) -> list[str]:
    tokens = _TOKEN.findall(text)
    return [token if token[0] in "'\"`" else token.lower() for token in tokens]
