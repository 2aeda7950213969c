"""The jars and options that a Spark session needs for the stores of its sinks.

Guarantee: a table on a local disk needs none. Jars are downloaded once, like Hudi's; if `spark.jars` or
`spark.jars.packages` has the same artifact, that one is used. Raises ConfigError for a scheme whose jar the sink cannot
download and for an ambiguous path, and the errors of `sink.clients.artifacts.fetch`.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from coordination.errors import ConfigError, Unavailable
from sink.clients.artifacts import spark_jars, storage_jars
from sink.clients.java_errors import JAVA_ERRORS, message
from sink.storage.access import S3_SCHEMES, hadoop_options, scheme_of
from sink.storage.connectors import CONNECTORS, Connector
from sink.storage.hdfs import NO_HDFS, SPARK_HADOOP, HdfsAccess, failover_options, hdfs_access, require_unambiguous

if TYPE_CHECKING:
    from sink.config import Settings

LOG = structlog.get_logger("sink.worker")
LOGIN_PAUSE = 5.0
_USELESS_KEYTAB = re.compile(
    "Unable to obtain password|not found in Kerberos database|Checksum failed|Integrity check|Pre-authentication"
    "|Cannot locate KDC|Cannot locate default realm"
)
"""Java's words for a file without the principal's key, an unknown principal, an old key, and a realm that nobody
describes."""


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


def log_in(jvm: Any, spark: Mapping[str, str], access: HdfsAccess) -> None:
    """Makes a JVM a client of the Kerberos realm, if the settings ask for one. Hadoop decides at the JVM's first look
    at a user whether there is a realm, and Spark tells it the `spark.hadoop.*` later. Raises ConfigError for a keytab
    that is of no use, Unavailable if no KDC answers.
    """
    if not access.secured:
        return
    conf = jvm.org.apache.hadoop.conf.Configuration()
    for name, value in spark.items():
        if name.startswith(SPARK_HADOOP):
            conf.set(name.removeprefix(SPARK_HADOOP), value)
    users = jvm.org.apache.hadoop.security.UserGroupInformation
    users.setConfiguration(conf)
    if access.principal and access.keytab:
        try:
            users.loginUserFromKeytab(access.principal, access.keytab)
        except JAVA_ERRORS as error:
            reason = message(error)
            kind = ConfigError if _USELESS_KEYTAB.search(reason) else Unavailable
            raise kind(f"spark.kerberos.keytab: {access.principal} cannot log in: {reason}") from None


def await_login(jvm: Any, spark: Mapping[str, str], accesses: Iterable[HdfsAccess]) -> None:
    """Logs in for the sinks of a process, of which some may be on HDFS. Waits for a realm whose server does not answer,
    and says so once. Raises ConfigError as `log_in` does.
    """
    access = next((access for access in accesses if access.secured), NO_HDFS)
    is_told = False
    while True:
        try:
            log_in(jvm, spark, access)
        except Unavailable as error:
            if not is_told:
                LOG.warning("worker.waits", waiting_for="the Kerberos realm", reason=str(error))
                is_told = True
            time.sleep(LOGIN_PAUSE)
        else:
            return


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
