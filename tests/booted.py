"""A systemd that boots in a container, for tests: over an overlay of this machine's root, on this machine's network."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.waiting import eventually

BOOT_SECONDS = 90.0
STOP_SECONDS = 30.0
PYTHON = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
"""The host's own: a unit with ProtectHome=true sees none in a home."""
ENVIRONMENT = ("env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8")


class CannotBoot(Exception):
    """A container with a systemd of its own cannot be had here; the text says why."""


class BootedHost:
    """Nothing that happens in it changes the machine's own files. `root` is its root, seen from outside."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._log = directory / "console.log"
        self._machine: subprocess.Popen[bytes] | None = None
        self._leader = 0
        self.root = directory / "root"

    def __enter__(self) -> BootedHost:
        _require_tools()
        for name in ("root", "upper", "work"):
            (self._directory / name).mkdir(parents=True)
        layers = f"lowerdir=/,upperdir={self._directory / 'upper'},workdir={self._directory / 'work'}"
        mounted = subprocess.run(
            ["mount", "-t", "overlay", "overlay", "-o", layers, str(self.root)],
            capture_output=True,
            text=True,
            check=False,
        )
        if mounted.returncode != 0:
            raise CannotBoot(f"no overlay of the root can be mounted: {mounted.stderr.strip()}")
        try:
            self._boot()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._machine is not None:
            # systemd halts on this signal, and nspawn ends with it.
            for pid in [self._leader] if self._leader else []:
                if psutil.pid_exists(pid):
                    os.kill(pid, signal.SIGRTMIN + 3)
            try:
                self._machine.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._machine.kill()
                self._machine.wait(STOP_SECONDS)
            self._machine = None
        subprocess.run(["umount", str(self.root)], check=False)
        if not os.path.ismount(self.root):
            shutil.rmtree(self._directory, ignore_errors=True)

    def run(self, *command: str, ok: tuple[int, ...] = (0,), seconds: float = 300.0) -> str:
        """Runs the command in the container as root; gives what it prints."""
        enter = ("nsenter", f"--target={self._leader}", "--mount", "--pid", "--uts", "--ipc", "--cgroup", "--")
        done = subprocess.run(
            [*enter, *ENVIRONMENT, *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode in ok, f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def write(self, path: str, text: str) -> None:
        """Makes the file with its directories, as seen from inside."""
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def show(self, unit: str, *names: str) -> dict[str, str]:
        """Properties of a unit."""
        printed = self.run("systemctl", "show", unit, *(f"--property={name}" for name in names))
        return dict(line.split("=", 1) for line in printed.splitlines() if "=" in line)

    def wait(self, unit: str, what: str, true: Callable[[dict[str, str]], object], seconds: float = 240.0) -> None:
        """Until the unit's state is as wanted."""
        seen: dict[str, str] = {}

        def reached() -> bool:
            seen.update(self.show(unit, "ActiveState", "SubState", "MainPID", "NRestarts", "Result", "ExecMainStatus"))
            return bool(true(seen))

        eventually(f"{unit} {what}", reached, seconds, lambda: f"{seen}\n{self.journal(unit)[-4000:]}")

    def journal(self, unit: str) -> str:
        return self.run("journalctl", "--unit", unit, "--no-pager", "--output=cat")

    def _boot(self) -> None:
        (self.root / "etc" / "machine-id").unlink(missing_ok=True)
        with self._log.open("wb") as log:
            self._machine = subprocess.Popen(
                [
                    # It ends with these tests, however they end.
                    "setpriv",
                    "--pdeathsig=KILL",
                    "systemd-nspawn",
                    f"--directory={self.root}",
                    "--boot",
                    "--register=no",
                    "--keep-unit",
                    f"--machine=sink-test-{os.getpid()}",
                    "--console=read-only",
                    "--link-journal=no",
                    "systemd.unit=basic.target",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            eventually("systemd is up", self._is_up, BOOT_SECONDS)
        except AssertionError:
            raise CannotBoot(f"systemd does not boot: {self._said()}") from None

    def _is_up(self) -> bool:
        assert self._machine is not None
        if self._machine.poll() is not None:
            raise CannotBoot(f"systemd-nspawn ends with {self._machine.returncode}: {self._said()}")
        leaders = psutil.Process(self._machine.pid).children()
        if not leaders:
            return False
        self._leader = leaders[0].pid
        try:
            # "degraded" is up as well: units of the machine have nothing to do in a container.
            return self.run("systemctl", "is-system-running", ok=(0, 1)).strip() in ("running", "degraded")
        except AssertionError:
            return False

    def _said(self) -> str:
        return " ".join(self._log.read_text(errors="replace").split())[-300:]


def _require_tools() -> None:
    if os.geteuid() != 0:
        raise CannotBoot("a container needs root")
    for tool in ("systemd-nspawn", "nsenter", "unshare", "setpriv", "ip"):
        if shutil.which(tool) is None:
            raise CannotBoot(f"no {tool} here (Debian: systemd-container, util-linux, iproute2)")
    command = [PYTHON, "-c", "import ensurepip, venv"]
    if not Path(PYTHON).exists() or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        raise CannotBoot(f"no {PYTHON} with venv here")
