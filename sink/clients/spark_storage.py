"""A Spark session's needs for the stores that the settings name: jars on its class path, and options.

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


def class_path(settings: Settings) -> Sequence[Path]:
    """Jars behind PySpark's own: Hudi's, and those of the stores. In this order, for the archive of classes is made of
    the first part."""
    jars = list(spark_jars())
    for connector in _connectors(settings):
        jars += [jar for jar in storage_jars(connector) if jar not in jars]
    return jars


def session_options(settings: Settings) -> dict[str, str]:
    """Spark's settings, secrets among them; none for a session that has to do with no store."""
    access = settings.storage
    for base_path in (settings.base_path, settings.errors_base_path):
        require_unambiguous(base_path, hdfs_access(settings.spark, os.environ))
    options = failover_options(access.hdfs)
    return {**options, **hadoop_options(access)} if schemes(settings) & S3_SCHEMES else options


def schemes(settings: Settings) -> frozenset[str]:
    """Schemes of the table and of its errors table."""
    return frozenset({scheme_of(settings.base_path), scheme_of(settings.errors_base_path)}) - {""}


def _connectors(settings: Settings) -> Iterator[Connector]:
    needed = sorted(
        {CONNECTORS[scheme] for scheme in schemes(settings) & set(CONNECTORS)}, key=lambda connector: connector.name
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
