"""Knows the archive of JVM classes that `python -m sink.clients.artifacts` makes, which lets Spark start faster.

Guarantee: without an archive, or with one that does not fit the JVM, its class path or its flags, Spark starts as it
would without this module: the JVM itself compares all of them and ignores an archive that differs. Voided by a file
that was changed by hand.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from sink.clients.artifacts import SPARK, cache_home, pyspark_jars
from sink.clients.java import find_java

FIRST_VERSION = 17
"""Java 11 reads only archives of the JDK's own classes without further options."""


def archive_path() -> Path | None:
    """The place of the archive for this Java, this PySpark and these jars, made or not; None if Java cannot use one."""
    java = find_java()
    if java.version < FIRST_VERSION:
        return None
    made_for = "\n".join([str(java.home.resolve()), str(pyspark_jars().resolve()), *SPARK])
    return cache_home() / "classes" / f"spark-{hashlib.sha256(made_for.encode()).hexdigest()[:12]}.jsa"


def archive_option() -> str:
    """The JVM's option to use the archive; empty if there is none."""
    archive = archive_path()
    # Spark splits the options at spaces.
    return f"-XX:SharedArchiveFile={archive}" if archive and archive.is_file() and " " not in str(archive) else ""
