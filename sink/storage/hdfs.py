"""How an HDFS cluster is reached: Hadoop's own client settings, for Python as for the JVM.

Guarantee: Python's client gets the name services, namenodes and user that Spark's JVM gets: `spark.hadoop.*`, else the
files in `HADOOP_CONF_DIR`. They travel to executors, which need no files of their own. Voided by `${...}` and includes
in those files, which only Hadoop resolves. Raises ConfigError for a file that is not XML, and for a base path that is
not of one meaning. Imports nothing that an executor need not have.
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
_SPARK = "spark.hadoop."
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
"""Some 40 s with two namenodes: a session of ZooKeeper's, and the fencing that comes before the other is active."""


@dataclass(frozen=True, slots=True)
class HdfsAccess:
    """Hadoop's client settings, and who is to be let in: travels to executors."""

    settings: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    """Without Kerberos: HDFS takes the client's word for it."""
    principal: str = ""
    keytab: str = ""

    @property
    def secured(self) -> bool:
        return self.settings.get(_AUTHENTICATION, "simple").lower() == "kerberos"


NO_HDFS = HdfsAccess()


def hdfs_access(spark: Mapping[str, str], environment: Mapping[str, str]) -> HdfsAccess:
    """`spark`: the settings of the session."""
    directory = environment.get("HADOOP_CONF_DIR", "")
    settings = dict(_from_files(Path(directory))) if directory else {}
    settings |= {name.removeprefix(_SPARK): value for name, value in spark.items() if name.startswith(_SPARK)}
    return HdfsAccess(
        {name: value for name, value in settings.items() if _NEEDED.fullmatch(name)},
        environment.get("HADOOP_USER_NAME", "") or getpass.getuser(),
        spark.get("spark.kerberos.principal", ""),
        spark.get("spark.kerberos.keytab", ""),
    )


def failover_options(access: HdfsAccess) -> dict[str, str]:
    """Settings that the JVM lacks to know a name service, where the settings name its namenodes and no more; and pauses
    that let it find an active namenode within seconds.
    """
    services = [name.removeprefix(_NAMENODES) for name in access.settings if name.startswith(_NAMENODES)]
    wanted = {f"{_PROVIDER}{service}": _BOTH_IN_TURN for service in services}
    wanted |= _SHORT_WAITS if services else {}
    return {f"{_SPARK}{name}": value for name, value in wanted.items() if name not in access.settings}


def locate(base_path: str, access: HdfsAccess) -> tuple[str, str]:
    """The cluster's address as Python's client takes it, and the path in it."""
    scheme, _, rest = base_path.partition("://")
    authority, _, path = rest.partition("/")
    if not authority:
        default = access.settings.get(_DEFAULT, "")
        scheme, _, authority = default.rstrip("/").partition("://")
        if scheme not in HDFS_SCHEMES or not authority:
            raise ConfigError(
                f"target.base.path: {base_path} names no name service, and {_DEFAULT} is {default or 'not set'}; write"
                " it like hdfs://nameservice/tables/orders"
            )
    if scheme.lower() == "hdfs" and not _is_service(authority, access) and ":" not in authority:
        authority = f"{authority}:{_PORT}"
    return f"{scheme.lower()}://{authority}", f"/{path.rstrip('/')}"


def require_unambiguous(base_path: str, access: HdfsAccess) -> None:
    """Raises ConfigError for a path that means a cluster to Hadoop and the local disk to Python."""
    default = access.settings.get(_DEFAULT, "").rstrip("/")
    if base_path.startswith("/") and default and not default.startswith("file:"):
        raise ConfigError(
            f"target.base.path: {base_path} is on {default} for Hadoop ({_DEFAULT}), and on the local disk for the"
            f" rest; write {default}{base_path}, or file://{base_path}"
        )


def client_settings(address: str, access: HdfsAccess) -> dict[str, str]:
    """Settings of Python's client; `address` as `locate` gives it. Hadoop's own would ask for minutes in silence."""
    scheme, _, authority = address.partition("://")
    several = scheme != "hdfs" or "," in access.settings.get(f"{_NAMENODES}{authority}", "")
    return {f"{_FAILOVER}max.attempts": "30" if several else "5", **_SHORT_WAITS, **access.settings}


def _is_service(authority: str, access: HdfsAccess) -> bool:
    return f"{_NAMENODES}{authority}" in access.settings


def _from_files(directory: Path) -> Iterator[tuple[str, str]]:
    """The later file wins, as in Hadoop."""
    for name in _FILES:
        file = directory / name
        try:
            properties = ElementTree.fromstring(file.read_bytes()).iter("property")
        except FileNotFoundError:
            continue
        except (OSError, ElementTree.ParseError) as error:
            raise ConfigError(f"HADOOP_CONF_DIR: {file} cannot be read ({error}); correct it") from error
        for element in properties:
            name, value = element.findtext("name", "").strip(), element.findtext("value", "").strip()
            if name:
                yield name, value
