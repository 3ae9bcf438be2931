"""A release: wheel and sdist as users get them, in an empty environment without extras. `make dist` tries its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from sluice import __version__

ROOT = Path(__file__).parents[2]
DATA = (
    "sluice/cli/project/README.md",
    "sluice/cli/project/gitignore",
    "sluice/dashboard/grafana.json",
    "sluice/dashboard/page/static/index.html",
    "sluice/dashboard/page/static/uplot/LICENSE",
    "sluice/dashboard/page/static/uplot/uPlot.iife.min.js",
    "sluice/dashboard/theme.json",
    "sluice/py.typed",
    "sluice/sim/scenarios/slow-site.toml",
)
pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Release:
    """What is uploaded."""

    wheel: Path
    sdist: Path


@dataclass(frozen=True)
class Installation:
    """An environment with a release in it, and a directory to work in."""

    environment: Path
    home: Path

    def run(self, *command: str, status: int = 0) -> str:
        """What a command of the environment prints."""
        variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_PYTHON")}
        variables["PATH"] = f"{self.environment / 'bin'}{os.pathsep}{variables['PATH']}"
        done = subprocess.run(
            [str(self.environment / "bin" / command[0]), *command[1:]],
            cwd=self.home,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
        )
        assert done.returncode == status, done.stdout
        return done.stdout


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The one in `SLUICE_DIST`, or built here."""
    named = os.environ.get("SLUICE_DIST")
    directory = Path(named) if named else tmp_path_factory.mktemp("dist")
    if not named:
        subprocess.run([sys.executable, "-m", "build", "--outdir", str(directory), str(ROOT)], check=True)
    (wheel,), (sdist,) = directory.glob("*.whl"), directory.glob("*.tar.gz")
    return Release(wheel.resolve(), sdist.resolve())


@pytest.fixture(scope="module")
def installation(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    environment = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    installed = Installation(environment, tmp_path_factory.mktemp("home"))
    installed.run("python", "-m", "pip", "install", "--quiet", str(release.wheel))
    return installed


def test_both_have_the_version_and_all_files(release: Release) -> None:
    assert f"-{__version__}-" in release.wheel.name and release.sdist.name.endswith(f"-{__version__}.tar.gz")
    with zipfile.ZipFile(release.wheel) as wheel:
        names = set(wheel.namelist())
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    static = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("static/*.*")}
    assert not (sources | static | set(DATA)) - names
    with tarfile.open(release.sdist) as sdist:
        packed = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"README.md", "LICENSE", "pyproject.toml", "src/sluice/version.py", "docs/README.md"} <= packed


def test_a_production_install_has_no_extras(installation: Installation) -> None:
    packages = {line.partition("==")[0].lower() for line in installation.run("python", "-m", "pip", "freeze").split()}
    assert not packages & {"numba", "vl-convert-python", "prometheus-client", "starlette", "uvicorn", "pytest"}
    installation.run("python", "-m", "pip", "check")


def test_commands_say_what_they_are_and_which_extra_they_need(installation: Installation) -> None:
    assert installation.run("sluice", "--version").strip() == f"sluice {__version__}"
    assert "CHECKPOINT" in installation.run("sluice", "ui", "--help").upper()
    assert "slow-site" in installation.run("sluice", "simulate", "--list")
    simulated = installation.run("sluice", "simulate", "slow-site", status=2)
    assert "sluice simulate needs the packages numba and vl-convert-python: pip install 'sluice-streaming[sim]'" in (
        simulated
    )
    assert "pip install 'sluice-streaming[sim]'" in installation.run("sluice", "figures", "flux-7", status=2)
    assert '"panels"' in installation.run("sluice", "metrics", "--dashboard")


def test_a_new_project_is_tested_and_runs_on_spark(installation: Installation) -> None:
    assert "sluice run flow.py" in installation.run("sluice", "new", "desk")
    desk = Installation(installation.environment, installation.home / "desk")
    desk.run("python", "-c", "import test_flow as t; t.test_pairs_of_a_minute()")
    desk.run("python", "make_data.py")
    desk.run("sluice", "run", "flow.py", "--available-now")
    rows = desk.run("python", "-c", "import pyarrow.parquet as pq; print(pq.read_table('out').num_rows)")
    assert int(rows) > 0
    assert "trades" in desk.run("sluice", "inspect", "checkpoint")
    for command, extra in (("ui", "ui"), ("metrics", "metrics")):
        needs = desk.run("sluice", command, "checkpoint", status=2)
        assert f"pip install 'sluice-streaming[{extra}]'" in needs
    assert "wrote report.html" in desk.run("sluice", "report", "checkpoint")
