"""Finds PySpark's jars, and downloads pinned Java artifacts once per user with Ivy.

A set of artifacts is complete or absent: it is downloaded beside its directory and moved there by one rename, under a
file lock, so that any number of processes may ask at once. The name of the directory contains a digest of the request,
so that versions never mix. Nothing is downloaded twice, and nothing is printed without a download. Deleting single
files in the cache voids this; delete whole directories. Ivy uses its default repositories, or those in the user's
`~/.ivy2/ivysettings.xml`. Raises `Unavailable` (the download failed; try again) and `ConfigError` (no Java, no PySpark,
cache not writable).
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from xml.sax.saxutils import quoteattr

import tenacity

from coordination.errors import ConfigError, Unavailable
from sink.clients.ivy import Download, retrieve
from sink.clients.java import find_java
from sink.clients.trust import write_trust_store
from sink.storage.connectors import Connector

SPARK = (
    "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0",
    "org.apache.spark:spark-avro_2.12:3.5.7",
)
"""The artifacts on Spark's class path beside PySpark's own jars."""

ATTEMPTS = 3


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
            with locked(jars / f".{directory.name}.lock", "downloading the same jars"):
                if not directory.is_dir():
                    download_into(name, document, directory)
        except OSError as error:
            raise ConfigError(
                f"{jars}: downloads cannot be kept there ({error}). Set SINK_HOME to a writable directory."
            ) from error
    return sorted(directory.glob("*.jar"))


def cache_home() -> Path:
    """Returns the directory of downloads: `SINK_HOME`, else `~/.cache/hudi-keeper-sink`."""
    if home := os.environ.get("SINK_HOME"):
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
