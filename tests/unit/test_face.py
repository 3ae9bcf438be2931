"""What `import sluice` brings: the public names, each with its explanation, and nothing heavy before it is used."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import sluice
from sluice import experiments

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
    for member, attribute in vars(value).items():
        if not member.startswith("_") and (callable(attribute) or isinstance(attribute, property)):
            assert inspect.getdoc(attribute), f"{name}.{member} has no docstring"


def test_what_is_for_experiments_says_so() -> None:
    assert "experiments" in (experiments.__doc__ or "")
    assert not hasattr(sluice.Query, "slowDown")
