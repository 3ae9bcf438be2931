"""Names that PySpark's classes have and ours have not: who asks for one is told what it is, and what to do instead."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import NoReturn

from sluice.model.option import suggest_name

_VIEWS = "createTempView createOrReplaceTempView createGlobalTempView createOrReplaceGlobalTempView registerTempTable"
_ADVICE = {
    "show collect take head tail first toPandas toArrow toLocalIterator": "rows come while a query runs: "
    "writeStream.format('console') prints them, format('memory').queryName('rows') has them in a view",
    "write writeTo": "rows come while a query runs, and writeStream says where they go",
    "foreach foreachPartition": "writeStream.foreach(f) or writeStream.foreachBatch(f) hands over rows as they come",
    "agg count": "groupBy().agg(n=('*', 'count')) is of all rows so far, groupBy().window('1 minute').agg(...) of time",
    "drop toDF withColumnRenamed withColumnsRenamed selectExpr": "select takes names and expressions: "
    "select('symbol', 'price AS cost')",
    "withColumns": "call withColumn for each",
    "fillna dropna na replace": "write withColumn('price', 'coalesce(price, 0)'), or filter('price IS NOT NULL')",
    "orderBy sort limit offset": "a stream has no end, but groupBy(...).top(3, 'price DESC') has the first rows of "
    "each group",
    "crossJoin": "join(other, where='true', within='1 minute') pairs rows that are near in time",
    "intersect intersectAll": "join(other, on=..., within=..., how='semi') has the rows with a partner near in time",
    "subtract exceptAll": "join(other, on=..., within=..., how='anti') has the rows without a partner near in time",
    _VIEWS: "flow.sql knows the streams of the flow by their names",
    "transform": "call the function with the stream",
    "cache persist unpersist checkpoint localCheckpoint repartition coalesce hint": "leave it out: the options of "
    "the writer say where rows and state are",
}
INSTEAD = {name: advice for names, advice in _ADVICE.items() for name in names.split()}
"""What to write in place of methods of PySpark's DataFrame that streams do not have."""
_ROLE = re.compile(r":\w+:\s*`~?\.?([^`]*)`")


def refuse_name(asked: object, name: str, counterpart: type, advice: str) -> NoReturn:
    """There is no such attribute; `counterpart` is the class of PySpark's that `asked` stands for."""
    own = f"{type(asked).__name__!r} object has no attribute {name!r}"
    if name.startswith("_") or not hasattr(counterpart, name):
        raise AttributeError(f"{own}{suggest_name(name, _public_names(asked))}")
    says = _first_sentence(inspect.getdoc(getattr(counterpart, name)) or "")
    raise AttributeError(f"{own}, which PySpark's {counterpart.__name__} has{says}; {advice}")


def _public_names(asked: object) -> Iterable[str]:
    return (name for name in dir(type(asked)) if not name.startswith("_"))


def _first_sentence(documentation: str) -> str:
    """What PySpark says of a method, in one sentence and in brackets.

    >>> _first_sentence("Returns a new :class:`DataFrame` that is sorted. Sorts.")
    ' ("Returns a new DataFrame that is sorted")'
    """
    paragraph = " ".join(documentation.split("\n\n")[0].split())
    plain = _ROLE.sub(lambda role: role[1].rpartition(".")[2], paragraph).replace("`", "")
    sentence = plain.partition(". ")[0].rstrip(".")
    return f' ("{sentence}")' if sentence else ""
