"""What an error says first: what went wrong, where, in the words of who wrote the flow."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
from engine_harness import DirectQuery
from pyspark.errors import StreamingQueryException
from specs import join, stream

from sluice.cli.flow_file import last_words
from sluice.expressions import compile_condition, compile_expression
from sluice.model.errors import EvaluationError, StorageError
from sluice.model.plan.plan import Plan
from sluice.model.plan.planning import plan_of
from sluice.model.plan.relation import Applied, Relation
from sluice.model.plan.stream import Filter, Project, Stream
from sluice.spark.failures import in_words, sentence_of

A, B = stream("a"), stream("b")
ROWS = pa.table({"k": [1], "ts": [0], "v": [0]}).cast(A.schema)


def _plan(place: str) -> Plan:
    """A join whose condition, or a step before or after it, divides by zero."""
    joined = join([A, B], 5)
    if place == "condition":
        joined = join([A, B], 5, "1 / a.v > 0")
    ratio = compile_expression("1 / v", lambda of, column: column, A.schema)
    key, time, value = (compile_expression(name, lambda of, column: column, A.schema) for name in ("k", "ts", "v"))
    steps = {
        "select": (Project((("k", key), ("ts", time), ("v", value), ("ratio", ratio))),),
        "filter": (Filter(compile_condition("1 / v > 0", lambda of, column: column, A.schema)),),
    }
    left, right = Relation(A, steps.get(place, ()), A), Relation(B, (), B)
    made = joined.output_schema()
    after = Filter(compile_condition("1 / a_v > 0", lambda of, column: column, made))
    result = Stream("result", made, joined.event_time, joined.delay)
    return plan_of([Relation(Applied(joined, (left, right)), (after,) if place == "result" else (), result)])


SAID = {
    "select": "stream 'a', column 'ratio': division by zero, in \"1 / v\"",
    "filter": "stream 'a', filter: division by zero, in \"1 / v\"",
    "condition": "join of 'a' and 'b', condition: division by zero, in \"1 / a.v\"",
    "result": 'results of operator 1 (Window join), filter: division by zero, in "1 / a_v"',
}


@pytest.mark.parametrize("place", SAID)
def test_an_expression_that_fails_says_where_it_stands(tmp_path: Path, place: str) -> None:
    query = DirectQuery(_plan(place), tmp_path, sites=1, partitions=4)
    with pytest.raises(EvaluationError, match=f"^{re.escape(SAID[place])}"):
        query.run([ROWS, ROWS])
    query.close()


class TestASentence:
    def test_is_what_a_task_said_at_last(self) -> None:
        trace = (
            "An exception was thrown from the Python worker. Please see the stack trace below.\n"
            "Traceback (most recent call last):\n"
            '  File "sluice/expressions/nodes.py", line 154, in _apply\n'
            "sluice.model.errors.EvaluationError: division by zero\n\n"
            "The above exception was the direct cause of the following exception:\n\n"
            "sluice.model.errors.EvaluationError: stream 'a', column 'ratio': division by zero\n\n"
            "\tat org.apache.spark.api.python.BasePythonRunner"
        )
        assert sentence_of(RuntimeError(trace)) == "stream 'a', column 'ratio': division by zero"

    def test_is_what_a_function_raised_in_a_task(self) -> None:
        trace = (
            "An exception was thrown from the Python worker:\n"
            "Traceback (most recent call last):\n"
            '  File "pyspark/worker.py", line 4327, in invoke_udf\n'
            "    run_process()\n"
            '  File "ledger.py", line 3, in write\n'
            "KeyError: 'A'\n\n"
            "During handling of the above exception, another exception occurred:\n\n"
            "Traceback (most recent call last):\n"
            '  File "ledger.py", line 5, in write\n'
            "ValueError: no such account\n"
        )
        assert sentence_of(RuntimeError(trace)) == "ValueError: no such account"

    def test_is_the_error_itself_where_it_is_our_own(self) -> None:
        assert sentence_of(StorageError("it is gone")) == "it is gone"

    def test_is_the_first_line_of_others(self) -> None:
        assert sentence_of(ArithmeticError("the ledger\ndoes not add up")) == "ArithmeticError: the ledger"
        assert sentence_of(KeyError()) == "KeyError"

    def test_comes_before_all_that_spark_says(self) -> None:
        told = StreamingQueryException("[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user\n\tat x")
        error = in_words("query 'pairs'", 3, EvaluationError("division by zero"), told)
        assert isinstance(error, StreamingQueryException)
        first, *_, last = str(error).splitlines()
        assert first == "query 'pairs' failed in epoch 3: division by zero"
        assert last == "\tat x"
        assert last_words(error) == first
