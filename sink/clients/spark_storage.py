"""A Spark session's needs for the stores that the settings of its sinks name: jars on its class path, and options.

Guarantee: a table on local disk asks for nothing. Jars are fetched once, as Hudi's are; where the settings bring the
same artifact themselves (`spark.jars`, `spark.jars.packages`) theirs is taken. Raises ConfigError for a scheme whose
jar nobody can fetch here and for a path that Hadoop would look for elsewhere, and what `sink.clients.artifacts.fetch`
raises.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from coordination.errors import ConfigError
from sink.clients.artifacts import spark_jars, storage_jars
from sink.storage.access import S3_SCHEMES, hadoop_options, scheme_of
from sink.storage.connectors import CONNECTORS, Connector
from sink.storage.hdfs import failover_options, hdfs_access, require_unambiguous

if TYPE_CHECKING:
    from sink.config import Settings


def class_path(*sinks: Settings) -> Sequence[Path]:
    """Jars behind PySpark's own: Hudi's, and those of the stores. In this order, for the archive of classes is made of
    the first part."""
    jars = list(spark_jars())
    for connector in _connectors(sinks):
        jars += [jar for jar in storage_jars(connector) if jar not in jars]
    return jars


def session_options(*sinks: Settings) -> dict[str, str]:
    """Spark's settings, secrets among them; none for a session that has to do with no store."""
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
    """Where the tables and their errors tables are."""
    return tuple(path for settings in sinks for path in (settings.base_path, settings.errors_base_path))


def schemes(*sinks: Settings) -> frozenset[str]:
    """Schemes of the tables and of their errors tables."""
    return frozenset(map(scheme_of, base_paths(*sinks))) - {""}


def _connectors(sinks: Sequence[Settings]) -> Iterator[Connector]:
    settings = sinks[0]
    needed = sorted(
        {CONNECTORS[scheme] for scheme in schemes(*sinks) & set(CONNECTORS)}, key=lambda connector: connector.name
    )
    brought = ",".join(settings.spark.get(name, "") for name in ("spark.jars", "spark.jars.packages"))
    brought += settings.spark.get("spark.driver.extraClassPath", "")
    for connector in needed:
        if connector.artifact in brought:
            continue
        if not connector.coordinates:
            raise ConfigError(
                f"target.base.path: Spark reaches {connector.name}:// with the jar {connector.artifact}, which is not"
                " fetched by itself; name its file in spark.jars"
            )
        yield connector
