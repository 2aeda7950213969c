"""The options with which Hadoop, pyarrow and hudi-rs reach the store of the table.

Guarantee: on S3 all three get the same endpoint, region, addressing and keys for a bucket: from `storage.s3.*`, else
from `spark.hadoop.fs.s3a.*`, else from the environment (`AWS_*`). Without keys there, pyarrow and hudi-rs get those
that `sink.storage.identity` finds (profile, role, web identity, container, instance), and Java asks Amazon's default
chain. No secret is in a `repr` or an error. Voided by credentials of a Hadoop provider class
(`aws.credentials.provider`). Raises ConfigError for an access key without its secret.

On HDFS Python's client gets the name services, namenodes and user of Spark's JVM: from `spark.hadoop.*`, else from the
files in `HADOOP_CONF_DIR`. Spark ships them to executors, which need no files. Voided by `${...}` and includes in those
files, which only Hadoop resolves. Raises ConfigError for a file that is not XML, and for an ambiguous base path.
Imports only what every executor has.
"""

from __future__ import annotations

import getpass
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from coordination.errors import ConfigError
from sink.storage.identity import Keys

HADOOP = "spark.hadoop.fs.s3a."
S3_SCHEMES = frozenset({"s3", "s3a", "s3n"})
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_AWS = re.compile(r"(?:s3[.-](?P<region>[a-z]{2}(?:-[a-z]+)+-\d)\.|.*\.|)amazonaws\.com(?:\.cn)?")
_KEYED_BUCKET = re.compile(r"^(bucket\..+\.)access\.key$", re.MULTILINE)
_DEFAULT_REGION = "us-east-1"
_ENVIRONMENT: Mapping[str, tuple[str, ...]] = {
    "endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "endpoint.region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
}
_KEYS: Mapping[str, str] = {
    "access.key": "AWS_ACCESS_KEY_ID",
    "secret.key": "AWS_SECRET_ACCESS_KEY",
    "session.token": "AWS_SESSION_TOKEN",
}
_PROVIDERS = "aws.credentials.provider"
_TEMPORARY = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
_STATIC = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
_ANONYMOUS = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
_CHAIN = "com.amazonaws.auth.DefaultAWSCredentialsProviderChain"
"""Hadoop's default provider knows environment and instance only; this one also knows profiles and web identities."""

_HADOOP_DEFAULTS: Mapping[str, str] = {
    # Parquet footers and blocks of log files are read at random positions: read no more than requested.
    "experimental.input.fadvise": "random",
    # Without this, each new file costs a request that deletes the markers of the directories above it.
    "directory.marker.retention": "keep",
    # Reads of a few commits may wait for each other, and must not wait for a connection.
    "connection.maximum": "256",
    "threads.max": "64",
    # Hadoop's defaults retry 20 times, and all that 7 times, for a quarter of an hour without a message. After a 503
    # they retry 20 times, doubling the wait, for hours.
    "attempts.maximum": "2",
    "retry.limit": "3",
    "retry.throttle.limit": "5",
    "retry.throttle.interval": "200ms",
    "connection.establish.timeout": "5000",
    "connection.timeout": "15000",
}
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
_SAME_STORE = {"s3": "s3a", "s3n": "s3a"}


@dataclass(frozen=True, slots=True)
class Connector:
    """The jars that Hadoop needs for a scheme."""

    name: str
    artifact: str
    """Identifies the jar in spark.jars and spark.jars.packages."""
    coordinates: tuple[str, ...]


_S3 = Connector(
    "s3a", "hadoop-aws", ("org.apache.hadoop:hadoop-aws:3.3.4", "com.amazonaws:aws-java-sdk-bundle:1.12.262")
)
_AZURE = Connector("abfs", "hadoop-azure", ("org.apache.hadoop:hadoop-azure:3.3.4",))
_GOOGLE = Connector("gs", "gcs-connector", ())
CONNECTORS = {**dict.fromkeys(S3_SCHEMES, _S3), "abfs": _AZURE, "abfss": _AZURE, "gs": _GOOGLE}
"""The schemes that need jars beside PySpark's. The versions match the Hadoop in PySpark."""


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


@dataclass(frozen=True, slots=True)
class Access:
    """Settings for S3, by their names after `fs.s3a.`, and for HDFS. Spark ships them to executors. No `repr` shows
    them."""

    s3a: Mapping[str, str] = field(default_factory=dict, repr=False)
    hdfs: HdfsAccess = field(default=NO_HDFS, repr=False)
    process_keys: Keys | None = field(default=None, repr=False)
    """Temporary keys of this process, for Python only: Java renews its own."""

    def option(self, bucket: str, name: str) -> str:
        """Returns a setting of the bucket, else of all buckets, else an empty text."""
        return self.s3a.get(f"bucket.{bucket}.{name}", self.s3a.get(name, "")).strip()

    @property
    def has_keys(self) -> bool:
        """Whether the settings have keys or a provider, for some bucket at least."""
        return any(name.endswith((*_KEYS, _PROVIDERS)) for name in self.s3a)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Keys and tokens, also those of single buckets."""
        return tuple(value for name, value in self.s3a.items() if name.endswith(tuple(_KEYS)))


NO_ACCESS = Access()


def access_of(
    spark: Mapping[str, str],
    storage_options: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Access:
    """Merges the sources: `storage_options` (`storage.s3.*` by Hadoop's names), then Spark's settings, then the
    environment.
    """
    options = {name.removeprefix(HADOOP): value for name, value in spark.items() if name.startswith(HADOOP)}
    options |= storage_options or {}
    variables_set = environment or {}
    for name, variables in _ENVIRONMENT.items():
        value = next((variables_set[variable] for variable in variables if variables_set.get(variable)), "")
        if value and name not in options:
            options[name] = value
    if not {"access.key", "secret.key", _PROVIDERS} & set(options):
        options |= {name: variables_set[variable] for name, variable in _KEYS.items() if variables_set.get(variable)}
    own_endpoint = (storage_options or {}).get("endpoint") or f"{HADOOP}endpoint" not in spark
    if options.get("endpoint") and own_endpoint and "path.style.access" not in options:
        # S3 servers other than Amazon's seldom have a host name for each bucket.
        options["path.style.access"] = str(not _is_aws(options["endpoint"])).lower()
    return Access(options)


def scheme_of(base_path: str) -> str:
    """Returns the scheme in lower case; empty for a path."""
    match = _SCHEME.match(base_path)
    return match[1].lower() if match else ""


def canonical(path: str) -> str:
    """Returns one form of a path, whichever name of its store's scheme it uses."""
    scheme, separator, rest = path.partition("://")
    if not separator:
        return re.sub(r"/+", "/", path.removeprefix("file:"))
    rest = re.sub(r"/+", "/", rest)
    return rest if scheme == "file" else f"{_SAME_STORE.get(scheme, scheme)}://{rest}"


def schemes_of(base_paths: Iterable[str]) -> frozenset[str]:
    """Returns the schemes of several base paths; a local disk has none."""
    return frozenset(map(scheme_of, base_paths)) - {""}


def bucket_of(base_path: str) -> str:
    return base_path.partition("://")[2].partition("/")[0]


def hadoop_options(access: Access) -> dict[str, str]:
    """Returns Spark's settings, with secrets."""
    options = {**_HADOOP_DEFAULTS, **access.s3a}
    endpoint = options.get("endpoint", "")
    if endpoint and not _is_aws(endpoint):
        options.setdefault("endpoint.region", _DEFAULT_REGION)
        if endpoint.lower().startswith("http://"):
            options.setdefault("connection.ssl.enabled", "false")
    if _PROVIDERS not in options:
        for bucket in _KEYED_BUCKET.findall("\n".join(options)):
            # Else Hadoop would send the other buckets' token with its keys.
            keys = _TEMPORARY if options.get(f"{bucket}session.token") else _STATIC
            options.setdefault(f"{bucket}{_PROVIDERS}", keys)
        keys = _TEMPORARY if options.get("session.token") else _STATIC
        options[_PROVIDERS] = keys if options.get("access.key") else _CHAIN
    schemes = {f"spark.hadoop.fs.{scheme}.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem" for scheme in ("s3", "s3n")}
    return {**schemes, **{f"{HADOOP}{name}": value for name, value in options.items()}}


def arrow_arguments(bucket: str, access: Access) -> dict[str, Any]:
    """Returns arguments of `pyarrow.fs.S3FileSystem`, with secrets."""
    named_keys = zip(("access_key", "secret_key", "session_token"), _keys(bucket, access), strict=True)
    arguments: dict[str, Any] = {name: value for name, value in named_keys if value}
    if access.option(bucket, _PROVIDERS) == _ANONYMOUS:
        arguments["anonymous"] = True
    scheme, endpoint = _endpoint(bucket, access)
    if scheme:
        arguments["scheme"] = scheme
    if endpoint:
        arguments["endpoint_override"] = endpoint
        # With an endpoint, Arrow puts the bucket into the path by default, Hadoop does not.
        arguments["force_virtual_addressing"] = not _by_path(bucket, access)
    if region := _region(bucket, access):
        arguments["region"] = region
    return arguments


def rust_options(base_path: str, access: Access) -> dict[str, str]:
    """Returns options of hudi-rs, with secrets."""
    if scheme_of(base_path) not in S3_SCHEMES:
        return {}
    bucket = bucket_of(base_path)
    named_keys = zip(
        ("aws_access_key_id", "aws_secret_access_key", "aws_session_token"), _keys(bucket, access), strict=True
    )
    options = {name: value for name, value in named_keys if value}
    if access.option(bucket, _PROVIDERS) == _ANONYMOUS:
        options["aws_skip_signature"] = "true"
    scheme, endpoint = _endpoint(bucket, access)
    if endpoint:
        options["aws_endpoint"] = f"{scheme or 'https'}://{endpoint}"
        options["aws_allow_http"] = str(scheme == "http").lower()
        options["aws_virtual_hosted_style_request"] = str(not _by_path(bucket, access)).lower()
    if region := _region(bucket, access) or (_DEFAULT_REGION if endpoint else ""):
        options["aws_region"] = region
    return options


def is_own_server(bucket: str, access: Access) -> bool:
    """Returns whether the bucket is on a server other than Amazon's, which may not support all of S3."""
    _, endpoint = _endpoint(bucket, access)
    return bool(endpoint) and not _is_aws(endpoint)


def _keys(bucket: str, access: Access) -> tuple[str, str, str]:
    prefix = f"bucket.{bucket}."
    has_own = f"{prefix}access.key" in access.s3a
    key, secret, token = (
        access.s3a.get(f"{prefix}{name}", "").strip() if has_own else access.option(bucket, name) for name in _KEYS
    )
    if bool(key) != bool(secret):
        missing = "secret.key" if key else "access.key"
        raise ConfigError(f"{HADOOP}{missing} is missing. Set access.key and secret.key, or neither.")
    if not key and access.process_keys is not None and not access.option(bucket, _PROVIDERS):
        return access.process_keys.access, access.process_keys.secret, access.process_keys.token
    return key, secret, token


def _endpoint(bucket: str, access: Access) -> tuple[str, str]:
    """Returns the scheme of the endpoint, if it is known, and `host:port`."""
    scheme, _, endpoint = access.option(bucket, "endpoint").rpartition("://")
    plain = access.option(bucket, "connection.ssl.enabled").lower() == "false"
    return scheme.lower() or ("http" if plain else ""), endpoint.rstrip("/")


def _by_path(bucket: str, access: Access) -> bool:
    return access.option(bucket, "path.style.access").lower() == "true"


def _region(bucket: str, access: Access) -> str:
    match = _AWS.fullmatch(_endpoint(bucket, access)[1])
    return access.option(bucket, "endpoint.region") or (match and match["region"]) or ""


def _is_aws(endpoint: str) -> bool:
    return _AWS.fullmatch(endpoint.rpartition("://")[2].rstrip("/").partition(":")[0]) is not None
