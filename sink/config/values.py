"""Text to typed values: how a setting is written in a file or an environment variable.

Each parser takes text, a tuple of text for a YAML list, or an already typed value. It raises `ValueError` with the
second half of a sentence: what is wrong, and how to write it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator

from sink.config.regex_cost import MOST_WAYS, ways

_DURATION_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE = {"": 1, "b": 1, "k": 1024, "kb": 1000, "kib": 1024, "m": 1024**2, "mb": 1000**2, "mib": 1024**2}
_SIZE |= {"g": 1024**3, "gb": 1000**3, "gib": 1024**3}
_NUMBER = re.compile(r"[+-]?\d+(_\d+)*\Z", re.ASCII)
_MEASURE = re.compile(r"(\d+(?:_\d+)*(?:\.\d+)?)\s*([A-Za-z]*)\Z", re.ASCII)
_LEADING_FLAGS = re.compile(r"\(\?([imsx]+)\)")
_JAVA_GROUP = re.compile(r"\(\?<(?=[A-Za-z_])")
CATALOG_NAME = re.compile(r"[A-Za-z0-9_]{1,128}")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+)\Z")
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})
LARGEST = 2**62
LONGEST_REGEX = 1000
ZOOKEEPER_PORT = 2181


def require_str(value: Any) -> str:
    text = "" if value is None else str(value).strip()
    if isinstance(value, (tuple, list)):
        raise ValueError("is a list, but one value is expected")
    if not text:
        raise ValueError("has no value. Give it one or remove it.")
    if any(ord(c) < 32 and c not in "\n\r\t" for c in text):
        raise ValueError("contains control characters")
    return text


def count(value: Any) -> int:
    text = require_str(value)
    if not _NUMBER.match(text) or len(text) > 20:
        raise ValueError("is not a whole number. Write it like 5000000 or 5_000_000.")
    return int(text)


def _measured(units: dict[str, int], problem: str) -> Callable[[Any], int]:
    """Returns a parser of a number with one of the units."""

    def parse(value: Any) -> int:
        measure = _measure(require_str(value), units)
        if measure is None:
            raise ValueError(problem)
        return measure

    return parse


def _measure(text: str, units: dict[str, int]) -> int | None:
    match = _MEASURE.match(text)
    if match is None or len(match[1]) > 24 or match[2].lower() not in units:
        return None
    number, unit = match[1].replace("_", ""), units[match[2].lower()]
    product = float(number) * unit if "." in number else int(number) * unit
    return int(product) if product == int(product) and product < LARGEST else None


def flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = require_str(value).lower()
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise ValueError("is neither true nor false. Write one of the two.")


def items(value: Any) -> tuple[str, ...]:
    """Returns the items of a YAML list, or of a text with commas."""
    raw_items = value if isinstance(value, (tuple, list)) else require_str(value).split(",")
    names = tuple(require_str(item) for item in raw_items if str(item).strip())
    if not names:
        raise ValueError("is an empty list. Name at least one or remove the setting.")
    if len(set(names)) != len(names):
        duplicates = sorted({item for item in names if names.count(item) > 1})
        raise ValueError(f"names {', '.join(duplicates)} more than once")
    return names


def _matching(pattern: str, problem: str) -> Callable[[Any], str]:
    """Returns a parser of one text, which the whole pattern has to match. `problem` may quote it as `{!r}`."""

    def parse(value: Any) -> str:
        text = require_str(value)
        if not re.fullmatch(pattern, text):
            raise ValueError(problem.format(text[:80]))
        return text

    return parse


def _all_matching(pattern: str, problem: str) -> Callable[[Any], tuple[str, ...]]:
    """Returns a parser like `_matching` of a list of texts."""
    parse_item = _matching(pattern, problem)
    return lambda value: tuple(map(parse_item, items(value)))


topic_names = _all_matching(
    r"(?!\.\.?\Z)[A-Za-z0-9._-]{1,249}", "names {!r}, which cannot be a Kafka topic. List topics separated by commas."
)


def topic_regex(value: Any) -> str:
    """Returns the expression in Python's form. Users of Kafka Connect may write Java's form of a named group,
    `(?<name>...)`, and leading flags like `(?i)`.
    """
    text = _JAVA_GROUP.sub("(?P<", require_str(value))
    if flags := _LEADING_FLAGS.match(text):
        text = f"(?{flags[1]}:{text[flags.end() :]})"
    if len(text) > LONGEST_REGEX:
        raise ValueError(f"is longer than {LONGEST_REGEX} characters. Write a shorter expression.")
    try:
        # `Settings.topic_pattern` puts it into a larger expression: `a)(b` is one there, and none alone.
        for expression in (text, f"(?:{text})"):
            re.compile(expression)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"is not a regular expression ({error}). Correct it.") from None
    if ways(text) > MOST_WAYS:
        raise ValueError(
            "may try a topic's name in so many ways that matching takes hours, like (a+)+ or .*.*.*.*. Write parts that"
            " cannot match the same characters, like ([^.]+\\.)+."
        )
    return text


def topic_name(value: Any) -> str:
    names = topic_names(value)
    if len(names) != 1:
        raise ValueError("names several topics. Name one.")
    return names[0]


def columns(value: Any) -> tuple[str, ...]:
    return () if value in ((), []) else _column_names(value)


_column_names = _all_matching(
    r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*",
    "names {!r}, which cannot be a field. List field names separated by commas.",
)


def type_names(value: Any) -> tuple[str, ...]:
    return () if value in ((), []) else _full_names(value)


_full_names = _all_matching(
    r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*",
    "names {!r}, which cannot be the full name of a record. List names like shop.Order separated by commas.",
)


def time_format(value: Any) -> str:
    """Returns a preset's name in small letters, or a pattern as it is."""
    from sink.layout.partition_times import PRESETS, pattern_of

    text = require_str(value)
    text = text.lower() if text.lower() in PRESETS else text
    pattern_of(text)
    return text


def time_zone(value: Any) -> str:
    from sink.layout.partition_times import zone_of

    text = require_str(value)
    zone_of(text)
    return text


def servers(value: Any) -> str:
    """Returns `host:port,host:port`, without blanks."""
    addresses = items(value)
    for server in addresses:
        check_address(server, port_required=True)
    return ",".join(addresses)


def ensemble(value: Any) -> str:
    """Returns ZooKeeper's connection string: `host:port,host:port`, optionally with a `/chroot` at the end. It fills in
    a missing port, because Hudi's lock has no default.
    """
    text = ",".join(items(value))
    hosts, _, chroot = text.partition("/")
    with_ports = [
        server if check_address(server, port_required=False) else f"{server}:{ZOOKEEPER_PORT}"
        for server in hosts.split(",")
    ]
    return ",".join(with_ports) + (znode_path(f"/{chroot}") if chroot else "")


def check_address(server: str, port_required: bool) -> bool:
    """Returns whether the address has a port."""
    if "://" in server:
        raise ValueError(f"has {server.split('://')[0]}://, but takes host:port without a scheme")
    host, colon, port = server.rpartition(":") if not server.endswith("]") else (server, "", "")
    if not colon:
        host = server
    if not _HOST.match(host) or (port_required and not colon):
        raise ValueError("is not a list of host:port, like broker-1:9092,broker-2:9092")
    if colon and not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536):
        raise ValueError(f"has a port that is not between 1 and 65535: {port[:20]!r}")
    return bool(colon)


def znode_path(value: Any) -> str:
    """Returns the path without a slash at the end. The tree's root is the empty text: a child's path begins with a
    slash.
    """
    text = require_str(value)
    path = text.strip("/")
    if not text.startswith("/") or (path and any(part in {"", ".", ".."} for part in path.split("/"))):
        raise ValueError("is not a znode path. Write it like /sink, or / for the root of the tree.")
    return f"/{path}" if path else ""


def urls(value: Any) -> tuple[str, ...]:
    """Returns addresses of one HTTP server, without a slash at the end."""
    if value in ((), []):
        return ()
    addresses = tuple(url.rstrip("/") for url in items(value))
    for url in addresses:
        try:
            parts = urlsplit(url)
        except ValueError:
            raise ValueError("is not a list of addresses like http://registry-1:8081") from None
        if parts.username is not None:
            raise ValueError("carries a login. Give it through schema.registry.basic.auth.user.info instead.")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"has {url[:80]!r}, which is not an address like http://registry-1:8081")
    return addresses


def metastore_uris(value: Any) -> str:
    """Returns `thrift://host:port,thrift://host:port`, without blanks."""
    uris = items(value)
    for uri in uris:
        scheme, _, server = uri.partition("://")
        if scheme != "thrift" or not server:
            raise ValueError(f"has {uri[:80]!r}, which is not an address like thrift://metastore-1:9083")
        check_address(server, port_required=True)
    return ",".join(uris)


def base_path(value: Any) -> str:
    """Returns an absolute path or a URI, without a slash at the end. One in a store is as Hadoop reads it, which other
    libraries do not: the scheme in small letters, several slashes as one.
    """
    text = require_str(value)
    if "://" not in text and not text.startswith("/") and not text.startswith("file:/"):
        raise ValueError("is relative, so every worker would see another place. Write /path or scheme://path.")
    try:
        parts = urlsplit(text)
    except ValueError:
        raise ValueError("is not a path or URI. Write it like /data/orders or s3a://bucket/orders.") from None
    if "://" in text and parts.scheme != "file" and not parts.netloc and not parts.path.strip("/"):
        raise ValueError("names a scheme but no place. Write it like s3a://bucket/orders.")
    if parts.password is not None:
        raise ValueError(
            "carries a password. Give credentials through storage.s3.* or spark.hadoop.* settings instead."
        )
    if ".." in parts.path.split("/"):
        raise ValueError("contains '..'. Write the path it stands for.")
    scheme, is_uri, rest = text.partition("://")
    if not is_uri or scheme.lower() == "file":
        path = text.rstrip("/")
        is_root = not path or path.endswith(":")
    else:
        authority, _, directory = rest.partition("/")
        names = [name for name in directory.split("/") if name not in ("", ".")]
        path = f"{scheme.lower()}://{authority}/{'/'.join(names)}"
        is_root = not names
    if is_root:
        raise ValueError("is the root of a file system or a bucket. A table needs a directory of its own.")
    return path


Text = Annotated[str, BeforeValidator(require_str)]
Count = Annotated[int, BeforeValidator(count)]
SparkMaster = Annotated[
    str,
    BeforeValidator(
        _matching(
            r"local|local\[.+\]|local-cluster\[.+\]|yarn|(spark|k8s|mesos)://.+",
            "is not a master of Spark. Write it like local[2], spark://host:7077, yarn or k8s://https://host.",
        )
    ),
]
DurationMs = Annotated[
    int,
    BeforeValidator(
        _measured(_DURATION_MS, "is not a duration. Write milliseconds, or a number with ms, s, m, h or d, like 30s.")
    ),
]
SizeBytes = Annotated[
    int,
    BeforeValidator(_measured(_SIZE, "is not a size. Write bytes, or a number with KiB, MiB or GiB, like 128MiB.")),
]
Flag = Annotated[bool, BeforeValidator(flag)]
Name = Annotated[
    str,
    BeforeValidator(
        _matching(
            r"(?!\.+\Z)[A-Za-z0-9._-]{1,200}",
            "may only contain letters, digits, dots, dashes and underscores (at most 200)",
        )
    ),
]
TopicName = Annotated[str, BeforeValidator(topic_name)]
Share = Annotated[
    float,
    BeforeValidator(_matching(r"[0-9]{1,3}(\.[0-9]{1,12})?", "is not a share. Write a number from 0 to 1, like 0.5.")),
]
TopicNames = Annotated[tuple[str, ...], BeforeValidator(topic_names)]
TopicRegex = Annotated[str, BeforeValidator(topic_regex)]
HostNames = Annotated[
    tuple[str, ...],
    BeforeValidator(
        _all_matching(r"[A-Za-z0-9.:_-]{1,253}", "names {!r}, which is not a host. Write names without port.")
    ),
]
SinkNames = Annotated[
    tuple[str, ...],
    BeforeValidator(
        _all_matching(
            r"[A-Za-z0-9._*?\[\]!-]{1,200}",
            "has {!r}, which no sink can be called. List names, or patterns with * and ?",
        )
    ),
]
Columns = Annotated[tuple[str, ...], BeforeValidator(columns)]
Urls = Annotated[tuple[str, ...], BeforeValidator(urls)]
Column = Annotated[
    str,
    BeforeValidator(
        _matching(
            r"[A-Za-z_][A-Za-z0-9_]*", "names {!r}, which cannot be a column. Use letters, digits and underscores."
        )
    ),
]
TimeFormat = Annotated[str, BeforeValidator(time_format)]
TimeZone = Annotated[str, BeforeValidator(time_zone)]
Servers = Annotated[str, BeforeValidator(servers)]
Ensemble = Annotated[str, BeforeValidator(ensemble)]
ZnodePath = Annotated[str, BeforeValidator(znode_path)]
MetastoreUris = Annotated[str, BeforeValidator(metastore_uris)]
CatalogName = Annotated[
    str,
    BeforeValidator(
        _matching(CATALOG_NAME.pattern, "is not a name for a catalogue: {!r}. Use letters, digits and underscores.")
    ),
]
JavaClass = Annotated[
    str,
    BeforeValidator(
        _matching(
            r"(?a)[A-Za-z_]\w*(\.[A-Za-z_][\w$]*)+",
            "is not the full name of a Java class. Write it like org.apache.hudi.hive.HiveSyncTool.",
        )
    ),
]
BasePath = Annotated[str, BeforeValidator(base_path)]
TypeNames = Annotated[tuple[str, ...], BeforeValidator(type_names)]
ValueFormatName = Literal[
    "json", "json-confluent", "avro", "avro-confluent", "protobuf", "protobuf-confluent", "string", "bytes"
]
KeyFormatName = Literal["none", "string", "int", "long", "json", "json-confluent", "avro-confluent"]
