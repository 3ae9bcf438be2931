"""What a query must not contain: each clause that no operator can run is refused by name, at its place."""

from __future__ import annotations

from collections.abc import Set

from sqlglot import exp

from sluice.expressions.parsing import Syntax
from sluice.model.plan.join_kind import JoinKind
from sluice.sql.functions import advice_against
from sluice.sql.text import Text

_NO_END = "a stream has no end"
_CLAUSES = {
    "order": ("ORDER", f"ORDER BY cannot be run: {_NO_END}; order what the query has written"),
    "sort": ("SORT", f"SORT BY cannot be run: {_NO_END}; order what the query has written"),
    "limit": ("LIMIT", f"LIMIT cannot be run: {_NO_END}; limit what you read of the result"),
    "offset": ("OFFSET", f"OFFSET cannot be run: {_NO_END}"),
    "qualify": ("QUALIFY", "QUALIFY cannot be run; write the query in FROM and filter around it with WHERE"),
    "laterals": ("LATERAL", "LATERAL VIEW cannot be run; explode the column in the DataFrame of the stream"),
    "cluster": ("CLUSTER", "CLUSTER BY cannot be run; rows are distributed by their keys"),
    "distribute": ("DISTRIBUTE", "DISTRIBUTE BY cannot be run; rows are distributed by their keys"),
    "hint": ("/*+", "hints have no meaning here; leave them out"),
}
_RUN = {"from_", "joins", "where", "group", "having", "expressions", "windows", "with_", "distinct"}
_KINDS = {
    ("", ""): JoinKind.INNER,
    ("", "INNER"): JoinKind.INNER,
    ("", "CROSS"): JoinKind.INNER,
    ("LEFT", ""): JoinKind.LEFT,
    ("LEFT", "OUTER"): JoinKind.LEFT,
    ("RIGHT", ""): JoinKind.RIGHT,
    ("RIGHT", "OUTER"): JoinKind.RIGHT,
    ("FULL", ""): JoinKind.FULL,
    ("FULL", "OUTER"): JoinKind.FULL,
    ("", "SEMI"): JoinKind.SEMI,
    ("LEFT", "SEMI"): JoinKind.SEMI,
    ("", "ANTI"): JoinKind.ANTI,
    ("LEFT", "ANTI"): JoinKind.ANTI,
}
"""The kinds of joins by the words before JOIN: those for the side, and those for the kind."""
_SETS = {
    exp.Intersect: ("INTERSECT", "LEFT SEMI JOIN"),
    exp.Except: ("EXCEPT", "LEFT ANTI JOIN"),
}
"""What compares whole queries, and the join that does the same to rows near in time."""


def vet_union(text: Text, at: exp.Union) -> None:
    """Refuses what cannot be run of a union."""
    _refuse_clauses(text, at, {"this", "expression", "with_", "distinct"})


def _refuse_clauses(text: Text, at: Syntax, run: Set[str]) -> None:
    """Refuses the clauses of a query that are not among those that can be run."""
    for name, value in at.args.items():
        if value and name in _CLAUSES:
            word, why = _CLAUSES[name]
            first = value[0] if isinstance(value, list) else value
            before = at.expressions[0] if name == "hint" else first
            text.refuse(text.before(word, before), why)
        if value and name not in run:
            text.refuse(at, f"this query has a part that cannot be run: {name.replace('_', ' ')}")
    if at.args.get("with_") is not None and at.args["with_"].args.get("recursive"):
        text.refuse(text.before("RECURSIVE", at.args["with_"]), "WITH RECURSIVE cannot be run")


def vet_select(text: Text, at: Syntax) -> exp.Select:
    """The query, if it is a SELECT of clauses that can be run."""
    for kind, (word, join) in _SETS.items():
        if isinstance(at, kind):
            instead = f"write it as {join} ... ON, with a bound on the event times"
            text.refuse(text.after(word, at), f"{word} cannot be run; {instead}")
    if not isinstance(at, exp.Select):
        text.refuse(text.beginning if at.parent is None else at, "only SELECT can be run")
    if not at.expressions:
        text.refuse(text.before("SELECT", at), "SELECT needs columns, or * for all")
    _refuse_clauses(text, at, _RUN)
    if at.args.get("distinct") and at.args["distinct"].args.get("on"):
        text.refuse(text.before("DISTINCT", at.expressions[0]), "DISTINCT ON cannot be run; use dropDuplicates")
    if at.args.get("from_") is None:
        text.refuse(text.before("SELECT", at.expressions[0]), "SELECT needs FROM and a stream")
    for part in at.walk():
        advice = advice_against(part)
        if advice is not None:
            text.refuse(part, advice)
    return at


def vet_join(text: Text, join: Syntax) -> JoinKind:
    """The kind of a join, if it can be run."""
    method, side, word = (str(join.args.get(name) or "").upper() for name in ("method", "side", "kind"))
    kind = None if method else _KINDS.get((side, word))
    if kind is None:
        words = [w for w in (method, side, word) if w]
        kinds = "INNER, LEFT, RIGHT, FULL, LEFT SEMI and LEFT ANTI"
        text.refuse(text.before(words[0], join.this), f"{' '.join(words)} JOIN cannot be run; there are {kinds}")
    if any(value for name, value in join.args.items() if name not in ("this", "on", "using", "kind", "side")):
        text.refuse(join.this, "this kind of join cannot be run; write JOIN ... ON ...")
    return kind


def vet_table(text: Text, at: Syntax) -> None:
    """Refuses everything in FROM but streams by name and queries in parentheses."""
    if not isinstance(at, exp.Table | exp.Subquery):
        text.refuse(at, "only streams and queries can stand in FROM")
    if isinstance(at, exp.Table) and (not isinstance(at.this, exp.Identifier) or at.args.get("db")):
        text.refuse(at, "FROM takes the plain names of streams of this flow")
    if isinstance(at, exp.Subquery) and not isinstance(at.this, exp.Query):
        text.refuse(at, "parentheses in FROM are for queries; write the joins without them")
    if any(value for name, value in at.args.items() if name not in ("this", "alias")):
        text.refuse(at, "only a name and an alias can be given here; TABLESAMPLE, PIVOT and others cannot be run")
