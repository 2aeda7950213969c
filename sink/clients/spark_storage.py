"""The jars and options that a Spark session needs for the stores of its sinks.

Guarantee: a table on a local disk needs none. Jars are downloaded once, like Hudi's; if `spark.jars` or
`spark.jars.packages` has the same artifact, that one is used. Raises ConfigError for a scheme whose jar the sink cannot
download and for an ambiguous path, and the errors of `sink.clients.java.fetch`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from coordination.errors import ConfigError
from sink.clients.java import spark_jars, storage_jars
from sink.storage.access import (
    CONNECTORS,
    S3_SCHEMES,
    Connector,
    failover_options,
    hadoop_options,
    hdfs_access,
    require_unambiguous,
    scheme_of,
)

if TYPE_CHECKING:
    from sink.config import Settings


def class_path(*sinks: Settings) -> Sequence[Path]:
    """Returns the jars after PySpark's: Hudi's, then those of the stores. The class archive covers the first part, so
    the order matters."""
    jars = list(spark_jars())
    for connector in _connectors(sinks):
        jars += [jar for jar in storage_jars(connector) if jar not in jars]
    return jars


def session_options(*sinks: Settings) -> dict[str, str]:
    """Returns Spark's settings for the stores, with secrets; an empty dict if there is no store."""
    options: dict[str, str] = {}
    for settings in sinks:
        access = settings.storage
        for base_path in base_paths(settings):
            require_unambiguous(base_path, hdfs_access(settings.spark, os.environ))
        options |= failover_options(access.hdfs)
        if schemes(settings) & S3_SCHEMES:
            options |= hadoop_options(access)
    return options


def base_paths(*sinks: Settings) -> tuple[str, ...]:
    """Returns the base paths of the tables and of their errors tables."""
    return tuple(path for settings in sinks for path in (settings.base_path, settings.errors_base_path))


def schemes(*sinks: Settings) -> frozenset[str]:
    """Returns the schemes of the tables and of their errors tables."""
    return frozenset(map(scheme_of, base_paths(*sinks))) - {""}


def _connectors(sinks: Sequence[Settings]) -> Iterator[Connector]:
    settings = sinks[0]
    connectors = sorted(
        {CONNECTORS[scheme] for scheme in schemes(*sinks) & set(CONNECTORS)}, key=lambda connector: connector.name
    )
    user_jars = ",".join(settings.spark.get(name, "") for name in ("spark.jars", "spark.jars.packages"))
    user_jars += settings.spark.get("spark.driver.extraClassPath", "")
    for connector in connectors:
        if connector.artifact in user_jars:
            continue
        if not connector.coordinates:
            raise ConfigError(
                f"target.base.path: Spark needs the jar {connector.artifact} for {connector.name}://, and the sink"
                " cannot download it. Name its file in spark.jars."
            )
        yield connector
