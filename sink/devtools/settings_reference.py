"""Writes the configuration reference from the settings themselves: `python -m sink.devtools.settings_reference`.

It lists every setting of `Settings` with its names, type, default, bounds and meaning, and every rule of
`sink.config.rules`. `docs/configuration.md` is its output; a test checks that it is up to date. Raises nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from sink.config.every_field import ProcessSettings
from sink.config.files import variable_name
from sink.config.model import Settings
from sink.config.rules import FLAGS, FOREIGN, RULES

_KINDS: Mapping[str, tuple[str, ...]] = {
    "duration": (
        "session_timeout_ms",
        "interval_ms",
        "writestatus_timeout_ms",
        "catalog_interval_ms",
        "services_audit_ms",
    ),
    "size": ("file_max_bytes", "flush_bytes"),
    "list": ("topics", "hosted", "record_key_fields", "partition_fields", "ordering_fields", "registry_urls"),
    "path": (
        "schema_file",
        "value_schema_file",
        "log_dir",
        "zookeeper_ca",
        "zookeeper_certificate",
        "zookeeper_key",
        "registry_ca",
        "registry_certificate",
        "registry_key",
        "http_certificate",
        "http_key",
    ),
    "servers": ("zookeeper", "bootstrap", "catalog_uris"),
}

_BY_CONTENT = ("schema_ddl", "schema_file", "value_schema_file")
"""Settings whose content must be the same on all workers: their paths may differ by host."""

_INTRODUCTION = """\
# Configuration

Written by `python -m sink.devtools.settings_reference` from the settings themselves; do not edit by hand.

A configuration is a YAML file (`.yaml`, `.yml`; keys nested or with dots, in any mixture), a Java properties
file (`.properties`), or a directory of them. Every worker of a sink gets the same; what differs by host comes
from the environment. `sink validate --config FILE` checks it, and the servers it names, and says all that is
wrong at once.

```yaml
zookeeper.connect: zk-1:2181,zk-2:2181,zk-3:2181
kafka:
  bootstrap.servers: broker-1:9092,broker-2:9092
  topic.names: [orders]
  security.protocol: SASL_SSL
  sasl.mechanism: SCRAM-SHA-512
  sasl.username: sink
  sasl.password: ${file:/etc/sink/secrets.properties:kafka.password}
  ssl.ca.location: /etc/sink/ca.pem
target.base.path: s3a://lake/orders
target.table.name: orders
schema.ddl: id BIGINT, customer STRING, amount DECIMAL(10,2), at TIMESTAMP
partition.field.name: customer
```

## Several sinks

One worker's process hosts any number of sinks, of one table each. Beneath `sinks` stand their names, and what
each sets itself; the rest of the file is shared. [How to](how-to/many-tables.md).

```yaml
zookeeper.connect: zk-1:2181,zk-2:2181,zk-3:2181
kafka.bootstrap.servers: broker-1:9092,broker-2:9092
target.base.path: s3a://lake/{topic}
sinks:
  orders:
    kafka.topic.names: orders
    schema.ddl: id BIGINT, amount DECIMAL(10,2)
  customers:
    kafka.topic.names: customers
    schema.ddl: id BIGINT, name STRING
    flush.size: 100000
```

In a properties file these are `sinks.orders.flush.size` and so on. In a directory, `fleet.yaml` (or
`fleet.properties`) is what all share, and every other such file is a sink, called like the file. A sink's name
is its `sink.name` and its `target.table.name`, unless it sets those. `{topic}` stands for the topic of a sink
that has one. Variables of the environment stand for all sinks that do not set the same themselves.

## How values are written

| kind | written as |
|---|---|
| count | a whole number: `5000000` or `5_000_000` |
| duration | milliseconds, or a number with `ms`, `s`, `m`, `h` or `d`: `60000`, `60s`, `1m` |
| size | bytes, or a number with `KiB`, `MiB`, `GiB` (or `KB`, `MB`, `GB` for powers of ten): `128MiB` |
| list | separated by commas, or a YAML list |
| flag | `true` or `false` (`yes`, `no`, `on`, `off`, `1`, `0` too) |

YAML values are taken as they are written: `010` is 10, and `no` is the text `no` where a text is expected.

## Environment variables

`SINK_` and the setting in upper case, dots and dashes as underscores, overrides the file:
`SINK_FLUSH_SIZE=1000`, `SINK_KAFKA_BOOTSTRAP_SERVERS=broker:9092`. An empty variable counts as not set.

Settings that are passed through (`kafka.*`, `spark.*`, `hoodie.*`) are overridden the same way:
`SINK_KAFKA_SASL_PASSWORD` is `kafka.sasl.password`. If the file has a key that gives this variable name, that
key is meant, whatever its case. Otherwise `_` stands for a dot and `__` for an underscore
(`SINK_HOODIE_TIME_GENERATOR_MAX__EXPECTED__CLOCK__SKEW__MS`), in lower case, unless the variable itself has
lower-case letters after its prefix (`SINK_SPARK_executor_memoryOverhead`).

Other variables that begin with `SINK_` are ignored, unless they are nearly right: then they are refused.

## Secrets

`${env:NAME}` is replaced by an environment variable, `${file:/path}` by the content of a file,
`${file:/path:key}` by the value of a key in a properties file, as Kafka's own configuration providers do.
Relative paths start at the configuration file. Values of such settings, and of every setting whose name
sounds like a credential, are never logged, printed or put into an error message, and are not part of the
fleet's digest.

## Kafka's client

Workers ask for offsets and read records with librdkafka. `kafka.*` settings of Java's clients are translated:
`sasl.jaas.config`, stores of the types PEM and PKCS12 (`ssl.truststore.*`, `ssl.keystore.*`), time-outs and fetches.
JKS stores cannot be: give PEM files (`ssl.ca.location`, `ssl.certificate.location`, `ssl.key.location`). What means
nothing to librdkafka (`max.poll.records`, say) is accepted and has no effect. Kerberos needs a librdkafka that is
[built with it](operations.md#kafka-with-kerberos).
"""

_OF_PROCESS = """\
## Settings of a worker's process

A process has them once, whatever sinks it hosts: in a configuration of several sinks they stand in the
shared part. Names are of letters, digits, `.`, `-` and `_`.
"""

_OF_SINK = """\
## Settings of a sink

Settings marked *fleet* have to be the same for all workers of a sink; a worker whose settings
differ is refused until all others have stopped.
"""

_PASSED_THROUGH = """\
## Settings that are passed through, with limits

Anything else below `kafka.` and `spark.` is passed through, except as below. Each setting of Hudi (`hoodie.*`) is
refused, checked or harmless: [settings of Hudi](hudi-settings.md) lists them.

| setting | allowed | because |
|---|---|---|"""

_MISTYPED = """
A name that is at most two letters away from a well-known one of Kafka, Spark or Hudi, and is none itself,
is refused with the name that was probably meant: their own readers would ignore it without a word.
"""

_OF_OTHER_TOOLS = """\
## Names of other tools

Refused with a pointer, so that nobody believes they have an effect:

| name | what to do |
|---|---|"""


def reference() -> str:
    """Returns the whole page."""
    return "\n".join([_INTRODUCTION, *_settings(), *_rules(), *_foreign()]).rstrip() + "\n"


def _settings() -> Iterator[str]:
    yield _OF_PROCESS
    yield from _fields(ProcessSettings.model_fields)
    yield _OF_SINK
    sink_fields = {
        name: field for name, field in Settings.model_fields.items() if name not in ProcessSettings.model_fields
    }
    yield from _fields(sink_fields)


def _fields(fields: Mapping[str, FieldInfo]) -> Iterator[str]:
    for name, field in fields.items():
        extra: Any = field.json_schema_extra
        yield f"### `{field.alias}`\n\n{field.description}\n"
        yield f"- type: {_kind(name, field)}{_bounds(field)}"
        yield f"- default: {_default(field)}"
        if extra["also"]:
            yield f"- also: {', '.join(f'`{alias}`' for alias in extra['also'])}"
        if not str(field.alias).endswith(".*"):
            yield f"- environment: `SINK_{variable_name(str(field.alias))}`"
        if extra["same_on_all_workers"] or name in _BY_CONTENT:
            yield "- *fleet*" + (" (what it says)" if name in _BY_CONTENT else "")
        yield f"- since: {extra['since']}"
        yield ""


def _kind(name: str, field: FieldInfo) -> str:
    for kind, names in _KINDS.items():
        if name in names:
            return kind
    if str(field.alias).endswith(".*"):
        return "any"
    choices = getattr(field.annotation, "__args__", ())
    if choices and all(isinstance(choice, str) for choice in choices):
        return "one of " + ", ".join(f"`{choice}`" for choice in choices)
    if field.annotation is bool:
        return "flag"
    if field.annotation is float:
        return "number"
    return "count" if field.annotation is int else "text"


def _bounds(field: FieldInfo) -> str:
    minimum = next((constraint.ge for constraint in field.metadata if hasattr(constraint, "ge")), None)
    maximum = next((constraint.le for constraint in field.metadata if hasattr(constraint, "le")), None)
    return "" if minimum is None else f", {minimum} to {maximum}"


def _default(field: FieldInfo) -> str:
    if field.default_factory is not None:
        return "none" if str(field.alias).endswith(".*") else "see above"
    if field.default is PydanticUndefined:
        return "none; required"
    if field.default is None or field.default == ():
        return "none"
    if isinstance(field.default, tuple):
        return f"`{','.join(field.default)}`"
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"


def _rules() -> Iterator[str]:
    yield _PASSED_THROUGH
    for key, rule in RULES.items():
        allowed = " or ".join(f"`{value}`" for value in rule.allowed) or "not at all"
        yield f"| `{key}` | {allowed} | {rule.why} |"
    for key in sorted(FLAGS):
        yield f"| `{key}` | a flag | it is passed on as `true` or `false`, however it is written |"
    yield _MISTYPED


def _foreign() -> Iterator[str]:
    yield _OF_OTHER_TOOLS
    for key, remedy in FOREIGN.items():
        yield f"| `{key}` | {remedy} |"


if __name__ == "__main__":
    sys.stdout.write(reference())
