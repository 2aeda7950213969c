"""Translates the `kafka.*` settings to native ones, which are librdkafka's. Users may also write those of Java's
clients.

Java's settings are translated where librdkafka has the same: security, stores in PEM and PKCS#12, time-outs,
fetches. Any other setting is accepted and ignored, because users copy settings from other tools. `problems` finds those
that must not be ignored: security that librdkafka cannot provide, and names that look mistyped.

`for_native` is for clients that read metadata and offsets, `for_native_consumer` for the consumer that reads records.
In this module names lack the prefix `kafka.`, except in messages. Raises nothing.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from sink.telemetry.redaction import Properties


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_RENAMED = {
    "sasl.mechanism": "sasl.mechanisms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "request.timeout.ms": "socket.timeout.ms",
}
"""Settings of all of Java's clients, by Java's name: librdkafka's. If both are set, librdkafka's takes precedence."""
_RENAMED_CONSUMER = {
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
}
"""The same for settings of Java's consumer."""

_NATIVE = _names(
    "client.id client.rack client.dns.lookup metadata.max.age.ms reconnect.backoff.ms"
    " reconnect.backoff.max.ms retry.backoff.ms connections.max.idle.ms security.protocol"
    " sasl.kerberos.service.name sasl.kerberos.kinit.cmd ssl.key.password"
    " sasl.mechanisms sasl.username sasl.password sasl.kerberos.keytab sasl.kerberos.principal"
    " sasl.kerberos.min.time.before.relogin sasl.oauthbearer.method sasl.oauthbearer.config"
    " sasl.oauthbearer.client.id sasl.oauthbearer.client.secret sasl.oauthbearer.scope"
    " sasl.oauthbearer.extensions ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem"
    " ssl.key.location ssl.key.pem ssl.crl.location ssl.curves.list ssl.sigalgs.list ssl.providers"
    " enable.ssl.certificate.verification enable.sasl.oauthbearer.unsecure.jwt debug broker.address.ttl"
    " broker.address.family broker.version.fallback api.version.request api.version.request.timeout.ms"
    " api.version.fallback.ms topic.metadata.refresh.interval.ms topic.metadata.refresh.fast.interval.ms"
    " topic.metadata.refresh.sparse topic.metadata.propagation.max.ms max.in.flight socket.blocking.max.ms"
    " socket.keepalive.enable socket.nagle.disable socket.max.fails socket.timeout.ms"
    " socket.send.buffer.bytes socket.receive.buffer.bytes log_level log.connection.close log.queue"
    " log.thread.name retry.backoff.max.ms enable.metrics.push message.max.bytes receive.message.max.bytes"
    " message.copy.max.bytes reconnect.backoff.jitter.ms topic.metadata.refresh.fast.cnt"
    " socket.connection.setup.timeout.ms sasl.oauthbearer.token.endpoint.url"
)
"""Settings of all of librdkafka's clients, by their names there."""
_NATIVE_CONSUMER = _names(
    "queued.min.messages queued.max.messages.kbytes fetch.error.backoff.ms fetch.message.max.bytes"
    " fetch.queue.backoff.ms fetch.wait.max.ms enable.partition.eof statistics.interval.ms"
    " offset.store.method fetch.min.bytes fetch.max.bytes group.id"
)
"""Further settings of librdkafka's consumer, by their names there."""

_OTHER_JAVA = _names(
    "max.poll.records max.poll.interval.ms session.timeout.ms heartbeat.interval.ms group.instance.id"
    " default.api.timeout.ms socket.connection.setup.timeout.max.ms isolation.level enable.auto.commit"
    " enable.auto.offset.store check.crcs"
    " allow.auto.create.topics exclude.internal.topics partition.assignment.strategy metric.reporters"
    " metrics.num.samples metrics.sample.window.ms metrics.recording.level auto.include.jmx.reporter"
    " security.providers sasl.jaas.config sasl.client.callback.handler.class"
    " sasl.login.callback.handler.class sasl.login.class sasl.kerberos.ticket.renew.window.factor"
    " sasl.kerberos.ticket.renew.jitter"
    " sasl.login.refresh.window.factor sasl.login.refresh.window.jitter"
    " sasl.login.refresh.min.period.seconds sasl.login.refresh.buffer.seconds sasl.login.connect.timeout.ms"
    " sasl.login.read.timeout.ms sasl.login.retry.backoff.ms sasl.login.retry.backoff.max.ms"
    " sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"
    " sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms auto.commit.interval.ms retries"
    " sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer"
    " sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name sasl.oauthbearer.clock.skew.seconds"
    " ssl.protocol ssl.provider ssl.enabled.protocols ssl.cipher.suites ssl.truststore.location"
    " ssl.truststore.password ssl.truststore.type ssl.truststore.certificates ssl.keystore.location"
    " ssl.keystore.password ssl.keystore.type ssl.keystore.key ssl.keystore.certificate.chain"
    " ssl.keymanager.algorithm ssl.trustmanager.algorithm ssl.secure.random.implementation"
    " ssl.endpoint.identification.algorithm ssl.engine.factory.class"
)
"""Other settings of Java's consumer. The functions below translate those of stores and logins, `sink.config.rules`
fixes some, and librdkafka has nothing like the rest."""
_KNOWN = _NATIVE | _NATIVE_CONSUMER | _OTHER_JAVA | {*_RENAMED, *_RENAMED_CONSUMER}
_SINK_SETTINGS = ("bootstrap.servers", "topic.names", "topic.regex", "group.offsets", "open.transaction.limit")
"""The sink's own settings below `kafka.`, which never get here: a mistyped one does."""

_FILES = (
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.truststore.location",
    "ssl.keystore.location",
    "sasl.kerberos.keytab",
)

_JAAS_OPTION = re.compile(r"([\w.]+)\s*=\s*(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s;\"']+)", re.DOTALL)
"""`name=value` in sasl.jaas.config, whose value may be in quotes."""


def for_native(bootstrap: str, settings: Properties) -> Properties:
    """Returns the native settings of clients that read metadata and offsets. `settings` are the user's."""
    native = {k: v for k, v in settings.items() if k in _NATIVE}
    for name, translated in _RENAMED.items():
        if name in settings:
            native.setdefault(translated, settings[name])
    algorithm = settings.get("ssl.endpoint.identification.algorithm")
    if algorithm is not None:
        # Java turns the check of host names off by an empty text.
        native["ssl.endpoint.identification.algorithm"] = algorithm.lower() or "none"
    _native_stores(settings, native)
    _native_login(settings, native)
    native["bootstrap.servers"] = bootstrap
    return Properties(native, _secret_names(settings, native))


def for_native_consumer(bootstrap: str, settings: Properties) -> Properties:
    """Returns the native settings of the consumer that reads records: those of `for_native`, and the user's for its
    fetches, its queue and its group.
    """
    native = {**for_native(bootstrap, settings)}
    native |= {translated: settings[name] for name, translated in _RENAMED_CONSUMER.items() if name in settings}
    native |= {name: value for name, value in settings.items() if name in _NATIVE_CONSUMER}
    return Properties(native, _secret_names(settings, native))


def problems(settings: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields name and problem of each setting that librdkafka would have to know and does not, or whose name looks
    mistyped.
    """
    for name in settings:
        if name not in _KNOWN and (near := difflib.get_close_matches(name, [*_KNOWN, *_SINK_SETTINGS], 1, 0.85)):
            yield (
                name,
                f"kafka.{name[:100]} is not a setting of Kafka's clients. Did you mean kafka.{near[0]}?",
            )
    yield from _store_problems(settings)
    mechanism = _mechanism(settings)
    if mechanism == "AWS_MSK_IAM":
        yield (
            "sasl.mechanism",
            "kafka.sasl.mechanism AWS_MSK_IAM is known to Java's client only. Use SCRAM or TLS client certificates.",
        )
    if "SASL" not in settings.get("security.protocol", "").upper():
        return
    options = _options(settings.get("sasl.jaas.config", ""))
    if mechanism == "PLAIN" or mechanism.startswith("SCRAM"):
        has_login = "sasl.username" in settings and "sasl.password" in settings
        if not has_login and not {"username", "password"} <= set(options):
            yield (
                "security.protocol",
                (
                    f"kafka.security.protocol needs credentials for {mechanism}. Set kafka.sasl.username and"
                    " kafka.sasl.password, or kafka.sasl.jaas.config with both."
                ),
            )
    elif not mechanism:
        yield (
            "security.protocol",
            "kafka.sasl.mechanism is missing, and kafka.security.protocol needs it. Set it, like SCRAM-SHA-512.",
        )


def _store_problems(settings: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    set_names = {name for name in settings if settings[name]}
    pem_authority = set_names & {"ssl.ca.location", "ssl.ca.pem", "ssl.truststore.certificates"}
    if "ssl.truststore.location" in set_names and not pem_authority and not _is_pem(settings, "ssl.truststore"):
        yield (
            "ssl.truststore.location",
            "kafka.ssl.truststore.location is read by Java's client only, unless kafka.ssl.truststore.type is PEM. Set"
            " kafka.ssl.ca.location (PEM) to a file with the same authorities.",
        )
    pem_key = set_names & {"ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.certificate.chain"}
    store_type = settings.get("ssl.keystore.type", "JKS").upper()
    if "ssl.keystore.location" in set_names and not pem_key and store_type not in {"PEM", "PKCS12"}:
        yield (
            "ssl.keystore.location",
            f"kafka.ssl.keystore.location of type {store_type} is read by Java's client only. Set"
            " kafka.ssl.keystore.type to PKCS12 or PEM (and convert the store), or set kafka.ssl.certificate.location"
            " and kafka.ssl.key.location to PEM files.",
        )
    for name in _FILES:
        # `probe` makes librdkafka look for authorities in the usual places of the host.
        if name in set_names and settings[name] != "probe" and not Path(settings[name]).exists():
            yield name, f"kafka.{name} names a file that does not exist. Check the path."
    for half, other in (("ssl.certificate", "ssl.key"), ("ssl.key", "ssl.certificate")):
        is_set = [any(f"{name}.{form}" in set_names for form in ("location", "pem")) for name in (half, other)]
        if is_set == [True, False]:
            yield half, f"kafka.{half}.* is set without kafka.{other}.*. A client certificate needs both."
    chain, key = "ssl.keystore.certificate.chain", "ssl.keystore.key"
    for half, other in ((chain, key), (key, chain)):
        if half in set_names and other not in set_names:
            yield half, f"kafka.{half} is set without kafka.{other}. A client certificate needs both."


def _native_stores(settings: Mapping[str, str], native: dict[str, str]) -> None:
    """Adds to `native` the authorities and the client certificate of Java's stores, unless it has them already."""
    if not {"ssl.ca.location", "ssl.ca.pem"} & set(native):
        if "ssl.truststore.certificates" in settings:
            native["ssl.ca.pem"] = settings["ssl.truststore.certificates"]
        elif "ssl.truststore.location" in settings and _is_pem(settings, "ssl.truststore"):
            native["ssl.ca.location"] = settings["ssl.truststore.location"]
    if {"ssl.certificate.location", "ssl.certificate.pem"} & set(native):
        return
    if "ssl.keystore.certificate.chain" in settings and "ssl.keystore.key" in settings:
        native["ssl.certificate.pem"] = settings["ssl.keystore.certificate.chain"]
        native["ssl.key.pem"] = settings["ssl.keystore.key"]
    elif "ssl.keystore.location" in settings:
        location = settings["ssl.keystore.location"]
        if _is_pem(settings, "ssl.keystore"):
            native |= {"ssl.certificate.location": location, "ssl.key.location": location}
        elif settings.get("ssl.keystore.type", "").upper() == "PKCS12":
            native["ssl.keystore.location"] = location
            native["ssl.keystore.password"] = settings.get("ssl.keystore.password", "")


def _native_login(settings: Mapping[str, str], native: dict[str, str]) -> None:
    """Adds to `native` the credentials of Java's sasl.jaas.config, unless it has them already."""
    options = _options(settings.get("sasl.jaas.config", ""))
    mechanism = _mechanism(settings)
    if mechanism == "PLAIN" or mechanism.startswith("SCRAM"):
        names = {"sasl.username": "username", "sasl.password": "password"}
    elif mechanism == "GSSAPI":
        names = {
            "sasl.kerberos.keytab": "keyTab",
            "sasl.kerberos.principal": "principal",
            "sasl.kerberos.service.name": "serviceName",
        }
    elif mechanism == "OAUTHBEARER":
        names = {
            "sasl.oauthbearer.client.id": "clientId",
            "sasl.oauthbearer.client.secret": "clientSecret",
            "sasl.oauthbearer.scope": "scope",
        }
        if "sasl.oauthbearer.token.endpoint.url" in settings:
            native.setdefault("sasl.oauthbearer.method", "oidc")
    else:
        return
    for name, option in names.items():
        if option in options:
            native.setdefault(name, options[option])
    if mechanism == "GSSAPI" and "sasl.kerberos.keytab" not in native:
        # librdkafka would run `kinit` with a keytab. Without one, another program renews the tickets: run nothing.
        native.setdefault("sasl.kerberos.kinit.cmd", "true")


def _mechanism(settings: Mapping[str, str]) -> str:
    return (settings.get("sasl.mechanism") or settings.get("sasl.mechanisms") or "").strip().upper()


def _is_pem(settings: Mapping[str, str], store: str) -> bool:
    return settings.get(f"{store}.type", "JKS").upper() == "PEM"


def _options(jaas: str) -> dict[str, str]:
    """Returns the options of a login module: the user name and the password, for example."""
    options: dict[str, str] = {}
    for match in _JAAS_OPTION.finditer(jaas):
        value = match[2]
        quoted = value[0] in "\"'" and len(value) > 1
        options[match[1]] = re.sub(r"\\(.)", r"\1", value[1:-1]) if quoted else value
    return options


def _secret_names(settings: Properties, client_settings: Mapping[str, str]) -> list[str]:
    """Returns the names in `client_settings` of values that contain a secret of `settings`, under whatever name."""
    secrets = [secret for secret in settings.secrets() if secret]
    return [name for name, value in client_settings.items() if any(secret in value for secret in secrets)]
