"""What `import sluice` brings: the public names, each with its explanation, and nothing heavy before it is used."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sluice
from sluice import experiments
from sluice.model import errors

HEAVY = ("pyspark", "pyarrow", "numpy", "pandas")


def test_importing_it_loads_nothing_heavy() -> None:
    code = f"import sys, sluice; print([m for m in {HEAVY!r} if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["run", "--help"]], ids=" ".join)
def test_the_command_loads_nothing_heavy_to_say_what_it_is(arguments: list[str]) -> None:
    """A Python that starts takes milliseconds; Arrow, numpy and the simulator take a second."""
    heavy = (*HEAVY, "numba", "sluice.sim", "sluice.figures", "sluice.dashboard.report")
    code = (
        "import sys\nfrom sluice.cli.main import main\n"
        f"try: main({arguments!r})\nexcept SystemExit as end: assert end.code == 0\n"
        f"print([m for m in {heavy!r} if m in sys.modules])"
    )
    said = subprocess.check_output([sys.executable, "-c", code], text=True).strip().splitlines()
    assert said[-1] == "[]"
    assert len(said) > 1


def test_policies_need_no_pyspark() -> None:
    code = "import sys; from sluice import ClusterView, Move, Policy; print('pyspark' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Flo'"):
        sluice.Flo  # noqa: B018


@pytest.mark.parametrize("name", [n for n in sluice.__all__ if n != "__version__"])
def test_public_names_are_there_and_explained(name: str) -> None:
    value = getattr(sluice, name)
    assert name in dir(sluice)
    assert value.__doc__
    members = vars(value) if inspect.isclass(value) else {}  # else it is a name for types
    for member, attribute in members.items():
        if not member.startswith("_") and (callable(attribute) or isinstance(attribute, property)):
            assert inspect.getdoc(attribute), f"{name}.{member} has no docstring"


def test_every_error_is_public_and_explained() -> None:
    """Whatever a user can get can be caught by its name in `sluice`, and has a row on the page about errors."""
    own = {name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, Exception)}
    own.add("QueryFailed")
    assert own <= set(sluice.__all__)
    page = (Path(__file__).parents[2] / "docs" / "reference" / "errors.md").read_text()
    assert own == set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    for name in own:
        error = getattr(sluice, name)
        assert issubclass(error, sluice.SluiceError)
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        parents = [base.__name__ for base in error.__bases__]
        assert all(f"`{parent}`" in row for parent in parents), (name, parents)


def test_wrong_words_and_what_goes_wrong_later_are_two_things() -> None:
    assert not issubclass(sluice.QueryError, sluice.FlowError)
    assert not issubclass(sluice.FlowError, sluice.QueryError)
    assert issubclass(sluice.QueryFailed, sluice.QueryError)


def test_what_is_for_experiments_says_so() -> None:
    assert "experiments" in (experiments.__doc__ or "")
    assert not hasattr(sluice.Query, "slowDown")
