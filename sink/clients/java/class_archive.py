"""The archive of JVM classes that `python -m sink.devtools.jars` makes: Spark starts faster with it.

Guarantee: Spark also starts without an archive, and with one for another JVM, class path or flags: the JVM compares
them and ignores an archive that differs. A file that was changed by hand voids this. Raises ConfigError if another
user may change it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from sink.clients.host.trusted_files import require_trusted
from sink.clients.java.installation import HOME_VARIABLE, SPARK, cache_home, find_java, pyspark_jars

FIRST_VERSION = 17
"""The first Java version that uses the archive: by default Java 11 only uses archives of the JDK's classes."""


def archive_path() -> Path | None:
    """Returns the archive of this Java, PySpark and jars; None if Java cannot use it. It may not exist."""
    java = find_java()
    if java.version < FIRST_VERSION:
        return None
    origin = "\n".join([str(java.home.resolve()), str(pyspark_jars().resolve()), *SPARK])
    return cache_home() / "classes" / f"spark-{hashlib.sha256(origin.encode()).hexdigest()[:12]}.jsa"


def archive_option() -> str:
    """Returns the JVM's option to use the archive; empty if there is no archive."""
    archive = archive_path()
    # Spark splits the options at spaces.
    if archive is None or not archive.is_file() or " " in str(archive):
        return ""
    require_trusted(archive.parent, HOME_VARIABLE)
    return f"-XX:SharedArchiveFile={archive}"
