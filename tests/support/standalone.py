"""A standalone Spark cluster on the loopback interface, or on hosts of a network of its own, whose workers can be added
and killed; nothing of it stays."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pyspark
from namespaces import Network, with_tmpfs
from quick_jvm import quick_to_start

import sluice

PATIENCE = 300
"""Seconds for whatever must happen sooner or later."""


class Standalone:
    """A master, and workers as they are added. Everything it writes lies below `root`. With a `network` the master and
    programs are at its first host."""

    def __init__(self, root: Path, network: Network | None = None) -> None:
        self.root, self.network = root, network
        self.address = "127.0.0.1" if network is None else network.first
        (root / "tmp").mkdir()
        path = [str(Path(sluice.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        self.env = {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(path),
            "SPARK_LOCAL_IP": self.address,
            "SPARK_LOCAL_DIRS": str(root / "tmp"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": quick_to_start(),
            "TMPDIR": str(root / "tmp"),
        }
        self.started: list[subprocess.Popen[bytes]] = []
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Standalone:
        try:
            self._daemon("master", "org.apache.spark.deploy.master.Master", "--port", "0")
            wait_for("the master", lambda: bool(self._found("master", r"Starting Spark master at (spark://\S+)")))
            self.url = self._found("master", r"Starting Spark master at (spark://\S+)")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Every process below those that were started, and every one that names the root, is killed."""
        for process in self.started:
            kill_group(process)
        for left in self.left():
            left.kill()

    def left(self) -> list[psutil.Process]:
        """What runs with this cluster's environment: daemons, executors, Python workers, reapers."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("TMPDIR") == self.env["TMPDIR"] and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                pass
        return found

    def add_worker(
        self, name: str, cores: int, memory: str = "1g", tmpfs: Path | None = None, host: int | None = None
    ) -> None:
        """Another worker; with a `tmpfs` of its own at a path, as another host has, if that is given. With the number
        of a `host` it is at that one of the network."""
        options = ["--cores", str(cores), "--memory", memory, "--work-dir", str(self.root / name)]
        kind = "org.apache.spark.deploy.worker.Worker"
        if host is None:
            self._daemon(name, kind, *options, self.url, within=with_tmpfs(tmpfs) if tmpfs else ())
        else:
            assert self.network is not None and tmpfs is not None
            within, address = self.network.at_new_host(tmpfs), self.network.address(host)
            self._daemon(name, kind, *options, self.url, within=within, address=address)
            self.network.connect(self.processes[name], host)
        wait_for(name, lambda: bool(self._found(name, "Successfully registered (with) master")))

    def kill_worker(self, name: str) -> None:
        """The machine is gone: the worker and its executors in one moment."""
        kill_group(self.processes[name])

    def executors(self, name: str) -> list[int]:
        """The pids of a worker's executors."""
        return [p.pid for p in psutil.Process(self.processes[name].pid).children(recursive=True) if is_executor(p)]

    def run(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """A program in the cluster's environment; it ends with the cluster."""
        return self._start(name, [*self._at_first, *command], self.env)

    @property
    def _at_first(self) -> list[str]:
        return [] if self.network is None else self.network.at_first

    def _start(
        self, name: str, command: Sequence[str], env: dict[str, str], stdin: int = subprocess.DEVNULL
    ) -> subprocess.Popen[bytes]:
        with (self.root / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=log,
                stderr=log,
                cwd=self.root,
                env=env,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def tail(self, name: str) -> str:
        return (self.root / f"{name}.log").read_text()[-6_000:]

    def _daemon(
        self, name: str, kind: str, *options: str, within: Sequence[str] = (), address: str | None = None
    ) -> None:
        """A program of Spark's, at an address of another host, which it has when that is connected, or here."""
        home, here = Path(pyspark.__file__).parent, address is None
        common = ["--host", address or self.address, "--webui-port", "0"]
        command = [
            *(self._at_first if here else ()),
            *within,
            str(home / "bin" / "spark-class"),
            kind,
            *common,
            *options,
        ]
        env = self.env | {"SPARK_LOCAL_IP": address or self.address}
        self.processes[name] = self._start(name, command, env, subprocess.DEVNULL if here else subprocess.PIPE)

    def _found(self, name: str, pattern: str) -> str:
        found = re.search(pattern, (self.root / f"{name}.log").read_text())
        return found[1] if found else ""


def is_executor(process: psutil.Process) -> bool:
    try:
        return any(part.endswith("CoarseGrainedExecutorBackend") for part in process.cmdline())
    except psutil.Error:  # it is gone, or a zombie
        return False


def kill_group(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wait_for(what: str, condition: Callable[[], bool], seconds: float = PATIENCE) -> float:
    """Until the condition holds; how long that took."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() < begun + seconds, f"no {what} in {seconds} s"
        time.sleep(0.2)  # the condition may read the whole journal
    return time.monotonic() - begun
