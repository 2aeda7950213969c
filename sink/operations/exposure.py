"""Notes what a configuration leaves open to others: one sentence each, with the setting that closes it.

None of it keeps a worker from starting: a first try needs no certificates. Guarantee: the notes are about the settings
and the modes of files alone; no server is asked. A proxy or a firewall that closes what is noted is not known here.
Raises nothing.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from pathlib import Path

from sink.clients.spark.specification import is_one_process
from sink.config import Configuration, ProcessSettings, Settings
from sink.config.secret_files import secret_files

SHORTEST_TOKEN = 16
_KEY_FILE = re.compile(r"[.](key[.](location|file)|keystore([.](location|file))?|keytab)$", re.IGNORECASE)
"""Names of passed-through settings whose value is the path of a key. Authorities and certificates are public."""


def exposure_notes(fleet: Configuration) -> list[str]:
    """Returns the notes on a worker of this configuration, each once."""
    notes = [*_http(fleet.process)]
    for settings in fleet.all_settings:
        notes += [*_zookeeper(settings), *_kafka(settings), *_registry(settings), *_spark(settings)]
    notes += _files(fleet)
    return list(dict.fromkeys(notes))


def _http(settings: ProcessSettings) -> Iterator[str]:
    token = settings.http_token.get_secret_value() if settings.http_token else ""
    if token and len(token) < SHORTEST_TOKEN:
        yield f"http.token: it has fewer than {SHORTEST_TOKEN} characters and can be guessed. Set a longer one."
    if settings.http_address is None or settings.http_is_on_loopback:
        return
    place = f"http.listen: {settings.http_listen} is beyond loopback"
    if settings.http_certificate is None:
        yield f"{place}, and answers in plain text, the token too. Set http.tls.cert.file and http.tls.key.file."
    if not token:
        yield f"{place}, and without http.token everybody there reads names, lags and reasons. Limit who reaches it."


def _zookeeper(settings: Settings) -> Iterator[str]:
    if settings.zookeeper_acl == "open":
        yield (
            "zookeeper.acl: it is open, so that every client of ZooKeeper may read and change the sink's znodes. Set"
            " creator, with zookeeper.digest.username."
        )


def _kafka(settings: Settings) -> Iterator[str]:
    protocol = settings.kafka_native.get("security.protocol", "PLAINTEXT").upper()
    if protocol.endswith("PLAINTEXT"):
        yield f"kafka.security.protocol: {protocol} sends records{_password(protocol)} in plain text. Set a TLS one."


def _password(protocol: str) -> str:
    return " and logins" if protocol.startswith("SASL") else ""


def _registry(settings: Settings) -> Iterator[str]:
    for url in settings.registry_urls:
        if url.lower().startswith("http://"):
            yield "schema.registry.url: http sends schemas and the login in plain text. Write https."
            return


def _spark(settings: Settings) -> Iterator[str]:
    if not is_one_process(settings.spark_master) and settings.spark.get("spark.authenticate", "").lower() != "true":
        yield (
            f"spark.authenticate: on {settings.spark_master} everybody who reaches the driver's port reads its"
            " settings, secrets too. Set it to true, as the cluster has it."
        )
    if settings.spark.get("spark.ui.enabled", "").lower() == "true":
        yield "spark.ui.enabled: Spark's page shows settings and plans to everybody who reaches it. Leave it off."


def _files(fleet: Configuration) -> Iterator[str]:
    keys = {path: name for settings in fleet.all_settings for path, name in _key_files(settings)}
    for path, name in (*secret_files(fleet.path), *keys.items()):
        if _everybody_reads(path):
            yield f"{name}: every user of this host may read {path}, which holds a secret. Take that away (chmod o-r)."


def _key_files(settings: Settings) -> Iterator[tuple[Path, str]]:
    """Yields the files of private keys and Kerberos keys, with their settings."""
    for path, name in (
        (settings.http_key, "http.tls.key.file"),
        (settings.zookeeper_key, "zookeeper.ssl.key.location"),
        (settings.registry_key, "schema.registry.ssl.key.location"),
    ):
        if path is not None:
            yield path, name
    passed_through = [(f"kafka.{name}", value) for name, value in settings.kafka.items()]
    for name, value in (*passed_through, *settings.spark.items(), *settings.hudi.items()):
        if _KEY_FILE.search(name):
            yield Path(value.strip()), name


def _everybody_reads(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False
