"""A host for the installer: this machine with directories of its own, an archive of small wheels, a hostile user."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from sink.devtools.dist import INSTALLER, PYTHON, UNIT, write_sums
from tests.strangers import NOT_ROOT

CHANGED = ("etc", "opt", "var", "srv")
"""Directories that are a layer over this machine's, so that nothing of it changes."""
PREFIX = "/opt/hudi-keeper-sink"
HOME = "/var/cache/hudi-keeper-sink"
ARCHIVE = "/opt/archive"
MARK = "/srv/run-by-root"
EVIL = f"import os\nif os.getuid() == 0:\n    open('{MARK}', 'a').write(__file__ + chr(10))\n"
"""Code that the service user plants: it notes when root runs it."""
_MODULES = {
    "sink/__init__.py": "",
    "sink/clients/__init__.py": "",
    "sink/clients/java/installation.py": "def find_java():\n    pass\n",
    "sink/devtools/__init__.py": "",
    "sink/devtools/class_archiving.py": """
import os, pathlib
home = pathlib.Path(os.environ["SINK_HOME"])
(home / "classes").mkdir()
for jar in home.glob("jars/*/*.jar"):
    (home / "classes" / jar.name).write_text(jar.read_text())
""",
}


_LAYERS = """
set -e
for name in "$@"; do
    mkdir -p "$LAYERS/$name/upper" "$LAYERS/$name/work"
    mount -t overlay overlay -o "lowerdir=/$name,upperdir=$LAYERS/$name/upper,workdir=$LAYERS/$name/work" "/$name"
done
echo ready
exec sleep infinity
"""


class InstallHost:
    """A mount namespace. `run` runs commands in it as root, or as the service user."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        if os.getuid() != 0:
            pytest.skip(NOT_ROOT)
        self._sleeper = subprocess.Popen(
            ["unshare", "--mount", "--propagation=private", "sh", "-c", _LAYERS, "layers", *CHANGED],
            env={**os.environ, "LAYERS": str(directory)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._sleeper.stdout is not None
        if self._sleeper.stdout.readline() != "ready\n":
            self.__exit__()
            pytest.skip("no overlay can be mounted here: run the tests as root of a machine")
        # Nothing may happen on the machine itself.
        assert os.readlink(f"/proc/{self._sleeper.pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt")

    def __enter__(self) -> InstallHost:
        self.run("useradd", "--system", "--user-group", "--home-dir", HOME, "--shell", "/usr/sbin/nologin", "sink")
        self.run("install", "-d", "-o", "sink", "-g", "sink", HOME)
        return self

    def __exit__(self, *_: object) -> None:
        self._sleeper.kill()
        self._sleeper.wait()

    def run(
        self,
        *command: str,
        user: str = "root",
        cwd: str = "/",
        ok: int | None = 0,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command. Fails the test unless its status is `ok`."""
        enter = ["nsenter", f"--target={self._sleeper.pid}", "--mount", f"--wdns={cwd}", "--"]
        become = [] if user == "root" else ["runuser", "--user", user, "--"]
        variables = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **(environment or {})}
        result = subprocess.run([*enter, *become, *command], env=variables, capture_output=True, text=True)
        assert ok in (None, result.returncode), f"{command}: {result.stdout}{result.stderr}"
        return result

    def plant(self, path: str, text: str = EVIL, mode: str = "755") -> None:
        """Writes a file as the service user."""
        script = 'mkdir -p "$(dirname "$1")" && printf %s "$2" >"$1" && chmod "$3" "$1"'
        self.run("sh", "-c", script, "plant", path, text, mode, user="sink")

    def unpack(self, place: str = ARCHIVE) -> None:
        """Makes the archive as root has unpacked it."""
        content = self._directory / "archive"
        shutil.rmtree(content, ignore_errors=True)
        (content / "wheels").mkdir(parents=True)
        make_wheel(content / "wheels", "1.0", _MODULES)
        (content / "jars" / "spark-1").mkdir(parents=True)
        (content / "jars" / "spark-1" / "hudi.jar").write_text("good")
        for file in (INSTALLER, UNIT):
            shutil.copy(file, content)
        (content / "python-version").write_text(f"{PYTHON}\n")
        write_sums(content)
        self.run("cp", "-R", str(content), place)

    def install(self, *arguments: str, place: str = ARCHIVE, cwd: str = "/", **environment: str) -> tuple[int, str]:
        """Runs the installer as root. Returns its status and its last line."""
        python = os.path.realpath(sys.executable)
        variables = {"PYTHON": python, **environment}
        result = self.run(f"{place}/install", *arguments, cwd=cwd, ok=None, environment=variables)
        return result.returncode, (result.stderr if result.returncode else result.stdout).strip().splitlines()[-1]

    def read(self, path: str) -> str:
        return self.run("cat", path).stdout

    def exists(self, path: str) -> bool:
        return self.run("test", "-e", path, ok=None).returncode == 0


def make_wheel(directory: Path, version: str, modules: Mapping[str, str]) -> None:
    """Makes a wheel that stands for the package's."""
    info = f"hudi_keeper_sink-{version}.dist-info"
    files = {
        **modules,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: hudi-keeper-sink\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [f"{name},sha256={_digest(text)},{len(text.encode())}" for name, text in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""])
    with zipfile.ZipFile(directory / f"hudi_keeper_sink-{version}-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
