"""The jars and options that a Spark session needs for the stores of its sinks.

Guarantee: a table on a local disk needs none. Jars are downloaded once, like Hudi's; if `spark.jars` or
`spark.jars.packages` has the same artifact, that one is used. Raises ConfigError for a scheme whose jar the sink cannot
download and for an ambiguous path, and the errors of `sink.clients.java.installation.fetch`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from coordination.errors import ConfigError
from sink.clients.java.installation import spark_jars, storage_jars
from sink.clients.spark.specification import SessionSpecification
from sink.storage.access import (
    CONNECTORS,
    S3_SCHEMES,
    Connector,
    failover_options,
    hadoop_options,
    hdfs_access,
    require_unambiguous,
    schemes_of,
)


def class_path(specification: SessionSpecification) -> Sequence[Path]:
    """Returns the jars after PySpark's: Hudi's, then those of the stores. The class archive covers the first part, so
    the order matters."""
    jars = list(spark_jars())
    for connector in _connectors(specification):
        jars += [jar for jar in storage_jars(connector) if jar not in jars]
    return jars


def session_options(specification: SessionSpecification) -> dict[str, str]:
    """Returns Spark's settings for the stores, with secrets; an empty dict if there is no store."""
    options: dict[str, str] = {}
    for base_path in specification.base_paths:
        require_unambiguous(base_path, hdfs_access(specification.options, os.environ))
    for sink in specification.sinks:
        options |= failover_options(sink.access.hdfs)
        if schemes_of(sink.base_paths) & S3_SCHEMES:
            options |= hadoop_options(sink.access)
    return options


def _connectors(specification: SessionSpecification) -> Iterator[Connector]:
    user_options = specification.options
    connectors = sorted(
        {CONNECTORS[scheme] for scheme in schemes_of(specification.base_paths) & set(CONNECTORS)},
        key=lambda connector: connector.name,
    )
    user_jars = ",".join(user_options.get(name, "") for name in ("spark.jars", "spark.jars.packages"))
    user_jars += user_options.get("spark.driver.extraClassPath", "")
    for connector in connectors:
        if connector.artifact in user_jars:
            continue
        if not connector.coordinates:
            raise ConfigError(
                f"target.base.path: Spark needs the jar {connector.artifact} for {connector.name}://, and the sink"
                " cannot download it. Name its file in spark.jars."
            )
        yield connector
