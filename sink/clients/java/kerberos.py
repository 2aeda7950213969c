"""Logs a JVM in to a Kerberos realm, for tables on HDFS.

Hadoop's client decides at a JVM's first look at a user whether there is a realm, and Spark tells it the
`spark.hadoop.*` later. Guarantee: where settings or `HADOOP_CONF_DIR` ask for Kerberos, Hadoop's client knows the realm
and, with a keytab, has a ticket, which it replaces before it expires. Without a keytab the user's ticket counts. Raises
ConfigError for a login that cannot succeed, Unavailable if no server of the realm answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import structlog
from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_fixed

from coordination.errors import ConfigError, Unavailable
from sink.clients.java.errors import JAVA_ERRORS, message
from sink.storage.access import NO_HDFS, SPARK_HADOOP, HdfsAccess

LOG = structlog.get_logger("sink.worker")
PAUSE_SECONDS = 5.0
_IN_VAIN = re.compile(
    "Unable to obtain password|not found in Kerberos database|Checksum failed|Integrity check|Pre-authentication"
    "|Cannot locate KDC|Cannot locate default realm|get Kerberos realm"
)
"""Java's words for a keytab without the principal's key, an unknown principal, an old key, and a realm that nobody
describes."""


def log_in(jvm: Any, spark: Mapping[str, str], access: HdfsAccess) -> None:
    """Logs in where `access` asks for it. `spark` are the settings of the Spark session."""
    if not access.secured:
        return
    conf = jvm.org.apache.hadoop.conf.Configuration()
    for name, value in spark.items():
        if name.startswith(SPARK_HADOOP):
            conf.set(name.removeprefix(SPARK_HADOOP), value)
    users = jvm.org.apache.hadoop.security.UserGroupInformation
    try:
        users.setConfiguration(conf)
        if access.principal and access.keytab:
            users.loginUserFromKeytab(access.principal, access.keytab)
    except JAVA_ERRORS as error:
        reason = message(error)
        kind = ConfigError if _IN_VAIN.search(reason) else Unavailable
        raise kind(
            f"Kerberos: {access.principal or access.user} cannot log in: {reason}. Check krb5.conf,"
            " spark.kerberos.principal and spark.kerberos.keytab."
        ) from None


def await_login(jvm: Any, spark: Mapping[str, str], accesses: Iterable[HdfsAccess]) -> None:
    """Logs in for the sinks of a process, of which some may be on HDFS. Waits for a realm whose server does not answer,
    and says so once.
    """
    access = next((access for access in accesses if access.secured), NO_HDFS)
    retrying = Retrying(
        retry=retry_if_exception_type(Unavailable), wait=wait_fixed(PAUSE_SECONDS), before_sleep=_report_first
    )
    retrying(log_in, jvm, spark, access)


def _report_first(state: RetryCallState) -> None:
    if state.attempt_number == 1 and state.outcome is not None:
        LOG.warning("worker.waits", waiting_for="the Kerberos realm", reason=str(state.outcome.exception()))
