"""Hadoop's client settings for HDFS, the same for Python and for the JVM.

Guarantee: Python's client gets the name services, namenodes and user of Spark's JVM: from `spark.hadoop.*`, else from
the files in `HADOOP_CONF_DIR`. Spark ships them to executors, which need no files. Voided by `${...}` and includes in
those files, which only Hadoop resolves. Raises ConfigError for a file that is not XML, and for an ambiguous base path.
Imports only what every executor has.
"""

from __future__ import annotations

import getpass
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from coordination.errors import ConfigError

HDFS_SCHEMES = frozenset({"hdfs", "viewfs"})
SPARK_HADOOP = "spark.hadoop."
_FILES = ("core-site.xml", "hdfs-site.xml")
_DEFAULT = "fs.defaultFS"
_AUTHENTICATION = "hadoop.security.authentication"
_NEEDED = re.compile(rf"dfs\..*|fs\.viewfs\..*|hadoop\.rpc\.protection|{re.escape(_AUTHENTICATION)}|{_DEFAULT}")
_PROVIDER = "dfs.client.failover.proxy.provider."
_NAMENODES = "dfs.ha.namenodes."
_BOTH_IN_TURN = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
_PORT = 8020
_FAILOVER = "dfs.client.failover."
_SHORT_WAITS = {f"{_FAILOVER}sleep.max.millis": "3000"}
"""With two namenodes the client retries for some 40 s: a ZooKeeper session time-out, and fencing before a failover."""


@dataclass(frozen=True, slots=True)
class HdfsAccess:
    """Hadoop's client settings and the user. Spark ships them to executors."""

    settings: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    """The user name without Kerberos: HDFS trusts the client."""
    principal: str = ""
    keytab: str = ""

    @property
    def secured(self) -> bool:
        return self.settings.get(_AUTHENTICATION, "simple").lower() == "kerberos"


NO_HDFS = HdfsAccess()


def hdfs_access(spark: Mapping[str, str], environment: Mapping[str, str]) -> HdfsAccess:
    """Returns the settings for HDFS. `spark` are the settings of the Spark session."""
    directory = environment.get("HADOOP_CONF_DIR", "")
    settings = dict(_from_files(Path(directory))) if directory else {}
    settings |= {
        name.removeprefix(SPARK_HADOOP): value for name, value in spark.items() if name.startswith(SPARK_HADOOP)
    }
    return HdfsAccess(
        {name: value for name, value in settings.items() if _NEEDED.fullmatch(name)},
        environment.get("HADOOP_USER_NAME", "") or getpass.getuser(),
        spark.get("spark.kerberos.principal", ""),
        spark.get("spark.kerberos.keytab", ""),
    )


def failover_options(access: HdfsAccess) -> dict[str, str]:
    """Returns settings that the JVM needs for a name service beside its namenodes: the failover provider, and short
    pauses, so that it finds the active namenode within seconds."""
    services = [name.removeprefix(_NAMENODES) for name in access.settings if name.startswith(_NAMENODES)]
    options = {f"{_PROVIDER}{service}": _BOTH_IN_TURN for service in services}
    options |= _SHORT_WAITS if services else {}
    return {f"{SPARK_HADOOP}{name}": value for name, value in options.items() if name not in access.settings}


def locate(base_path: str, access: HdfsAccess) -> tuple[str, str]:
    """Returns the cluster's address for Python's client, and the path in it."""
    scheme, _, rest = base_path.partition("://")
    authority, _, path = rest.partition("/")
    if not authority:
        default = access.settings.get(_DEFAULT, "")
        scheme, _, authority = default.rstrip("/").partition("://")
        if scheme not in HDFS_SCHEMES or not authority:
            raise ConfigError(
                f"target.base.path: {base_path} has no name service, and {_DEFAULT} is {default or 'not set'}. Write it"
                " like hdfs://nameservice/tables/orders."
            )
    if scheme.lower() == "hdfs" and ":" not in authority and f"{_NAMENODES}{authority}" not in access.settings:
        authority = f"{authority}:{_PORT}"
    return f"{scheme.lower()}://{authority}", f"/{path.rstrip('/')}"


def require_unambiguous(base_path: str, access: HdfsAccess) -> None:
    """Raises ConfigError for a path that Hadoop resolves to a cluster and Python to the local disk."""
    default = access.settings.get(_DEFAULT, "").rstrip("/")
    if base_path.startswith("/") and default and not default.startswith("file:"):
        raise ConfigError(
            f"target.base.path: {base_path} is on {default} for Hadoop ({_DEFAULT}), and on the local disk for Python."
            f" Write {default}{base_path} or file://{base_path}."
        )


def client_settings(address: str, access: HdfsAccess) -> dict[str, str]:
    """Returns the settings of Python's client. With Hadoop's defaults it would retry for minutes without a message."""
    scheme, _, authority = address.partition("://")
    several = scheme != "hdfs" or "," in access.settings.get(f"{_NAMENODES}{authority}", "")
    return {f"{_FAILOVER}max.attempts": "30" if several else "5", **_SHORT_WAITS, **access.settings}


def _from_files(directory: Path) -> Iterator[tuple[str, str]]:
    """Yields the properties of both files: the later file wins, as in Hadoop."""
    for name in _FILES:
        file = directory / name
        try:
            properties = ElementTree.fromstring(file.read_bytes()).iter("property")
        except FileNotFoundError:
            continue
        except (OSError, ElementTree.ParseError) as error:
            raise ConfigError(f"HADOOP_CONF_DIR: {file} cannot be read ({error}). Correct it.") from error
        for element in properties:
            name, value = element.findtext("name", "").strip(), element.findtext("value", "").strip()
            if name:
                yield name, value
