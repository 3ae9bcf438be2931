"""Hosts that are none: processes with mounts of their own, or with a network of their own. Nothing of it stays when
they have ended."""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from forking import fork

_NEW_MOUNTS = 0x00020000
_MOUNT_TMPFS = 'mount -t tmpfs none "$0" && exec "$@"'
_GO_ON_WHEN_TOLD = 'read answer && exec "$@"'
_BRIDGE = "ip link set lo up && ip link add bridge type bridge && ip addr add {address}/24 dev bridge && "
_BRIDGE += "ip link set bridge up && echo ready && exec sleep infinity"


def can_mount() -> bool:
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0


def can_make_networks() -> bool:
    make = "ip link add bridge type bridge && ip link add one type veth peer name other"
    return subprocess.run(["unshare", "--net", "sh", "-c", make], capture_output=True).returncode == 0


def with_tmpfs(path: Path) -> list[str]:
    """The beginning of a command that runs with a tmpfs of its own at a path."""
    return ["unshare", "--mount", "sh", "-c", _MOUNT_TMPFS, str(path)]


def mount_tmpfs(path: Path, *options: str) -> None:
    """For this process and those that it starts from now on, if it is `in_own_mounts`."""
    path.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(options), "none", str(path)], check=True)


def in_own_mounts(work: Callable[[], None]) -> None:
    """Do some work in a child process whose mounts are its own; it is an error if it fails."""
    child = fork()
    if child == 0:
        status = 1
        try:
            assert ctypes.CDLL(None, use_errno=True).unshare(_NEW_MOUNTS) == 0, os.strerror(ctypes.get_errno())
            subprocess.run(["mount", "--make-rprivate", "/"], check=True)
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, f"it failed with {status}, see above"


class Network:
    """A network of hosts, none of whom is this one: the first has a bridge, to which the others are connected."""

    first = "10.77.0.1"

    def __init__(self) -> None:
        command = ["unshare", "--net", "sh", "-c", _BRIDGE.format(address=self.first)]
        self._bridge = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        assert self._bridge.stdout is not None and self._bridge.stdout.readline() == b"ready\n"
        self.at_first = ["nsenter", f"--net=/proc/{self._bridge.pid}/ns/net"]
        """The beginning of a command that runs at the first host."""

    def address(self, number: int) -> str:
        """Of a host, from 2 on."""
        return f"10.77.0.{number}"

    def at_new_host(self, tmpfs: Path) -> list[str]:
        """The beginning of a command that runs at a new host, with a tmpfs of its own, once it is told by a line."""
        return ["unshare", "--net", *with_tmpfs(tmpfs), "sh", "-c", _GO_ON_WHEN_TOLD, "sh"]

    def connect(self, process: subprocess.Popen[bytes], number: int) -> None:
        """Give a process at a new host this address, and have it go on."""
        while os.readlink(f"/proc/{process.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            time.sleep(0.01)  # it is still on its way
        link = f"host{number}"
        subprocess.run([*self.at_first, "ip", "link", "delete", link], capture_output=True)  # of one that was there
        self._run(
            f"ip link add {link} type veth peer name eth0 netns {process.pid} && ip link set {link} master bridge up"
        )
        there = f"ip link set lo up && ip addr add {self.address(number)}/24 dev eth0 && ip link set eth0 up"
        subprocess.run(["nsenter", f"--net=/proc/{process.pid}/ns/net", "sh", "-c", there], check=True)
        assert process.stdin is not None
        process.stdin.write(b"go on\n")
        process.stdin.close()

    def cut_off(self, number: int) -> None:
        """Nothing reaches a host, and nothing comes from there."""
        self._run(f"ip link set host{number} down")

    def bring_back(self, number: int) -> None:
        self._run(f"ip link set host{number} up")

    def _run(self, commands: str) -> None:
        subprocess.run([*self.at_first, "sh", "-c", commands], check=True)

    def close(self) -> None:
        self._bridge.kill()
        self._bridge.wait()
