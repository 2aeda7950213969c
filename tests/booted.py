"""A systemd that boots in a container, for tests: on an overlay of this machine's root, with this machine's network."""

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
"""The host's Python: a unit with ProtectHome=true sees no Python in a home directory."""
ENVIRONMENT = ("env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8")


class CannotBoot(Exception):
    """This machine cannot boot a container with its own systemd; the text says why."""


class BootedHost:
    """A booted container, which never changes the machine's own files. `root` is its root, seen from outside."""

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
        mount = subprocess.run(
            ["mount", "-t", "overlay", "overlay", "-o", layers, str(self.root)],
            capture_output=True,
            text=True,
            check=False,
        )
        if mount.returncode != 0:
            raise CannotBoot(f"no overlay of the root can be mounted: {mount.stderr.strip()}")
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
        """Runs the command in the container as root, and returns its output."""
        enter = ("nsenter", f"--target={self._leader}", "--mount", "--pid", "--uts", "--ipc", "--cgroup", "--")
        result = subprocess.run(
            [*enter, *ENVIRONMENT, *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert result.returncode in ok, (
            f"{' '.join(command)}: exit status {result.returncode}\n{result.stdout}{result.stderr}"
        )
        return result.stdout

    def write(self, path: str, text: str) -> None:
        """Writes the file and creates its directories; `path` is as seen from inside."""
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def show(self, unit: str, *names: str) -> dict[str, str]:
        """Returns properties of a unit."""
        output = self.run("systemctl", "show", unit, *(f"--property={name}" for name in names))
        return dict(line.split("=", 1) for line in output.splitlines() if "=" in line)

    def wait(
        self, unit: str, description: str, condition: Callable[[dict[str, str]], object], seconds: float = 240.0
    ) -> None:
        """Waits until the unit's properties meet the condition."""
        properties: dict[str, str] = {}

        def reached() -> bool:
            names = ("ActiveState", "SubState", "MainPID", "NRestarts", "Result", "ExecMainStatus")
            properties.update(self.show(unit, *names))
            return bool(condition(properties))

        eventually(f"{unit} {description}", reached, seconds, lambda: f"{properties}\n{self.journal(unit)[-4000:]}")

    def journal(self, unit: str) -> str:
        return self.run("journalctl", "--unit", unit, "--no-pager", "--output=cat")

    def _boot(self) -> None:
        (self.root / "etc" / "machine-id").unlink(missing_ok=True)
        with self._log.open("wb") as log:
            self._machine = subprocess.Popen(
                [
                    # The container ends with these tests, even if they are killed.
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
            raise CannotBoot(f"systemd does not boot: {self._console_tail()}") from None

    def _is_up(self) -> bool:
        assert self._machine is not None
        if self._machine.poll() is not None:
            raise CannotBoot(f"systemd-nspawn ends with {self._machine.returncode}: {self._console_tail()}")
        leaders = psutil.Process(self._machine.pid).children()
        if not leaders:
            return False
        self._leader = leaders[0].pid
        try:
            # "degraded" is up as well: units of the machine have nothing to do in a container.
            return self.run("systemctl", "is-system-running", ok=(0, 1)).strip() in ("running", "degraded")
        except AssertionError:
            return False

    def _console_tail(self) -> str:
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
