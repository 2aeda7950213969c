"""The settings of a Schema Registry, which Spark ships to the executors, and the clients made from them.

Guarantee: no secret is in a `repr`, in an error, or in an address that an HTTP client may log. Settings that the client
does not know, and settings that the sink sets itself, are refused. Certificate files must exist on the host where the
client is made. Raises ConfigError.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from coordination.errors import ConfigError
from sink.telemetry.redaction import Redactor, looks_secret, redacted_value

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

LOGIN = "basic.auth.user.info"
PATIENCE_SECONDS = 10.0
REQUEST_SECONDS = 5.0
"""The default of schema.registry.timeout: how long one server may be silent."""

_LOGIN_SOURCE = "basic.auth.credentials.source"
_FILES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
_OURS = ("url", "max.retries", "retries.wait.ms", "retries.max.wait.ms", "cache.capacity", "cache.latest.ttl.sec")


@dataclass(frozen=True, repr=False)
class RegistryAccess:
    """Addresses and properties. `properties` have Confluent's names, without a prefix; `timeout` is in seconds. `name`
    tells the ids of one registry from those of another."""

    urls: tuple[str, ...]
    properties: tuple[tuple[str, str], ...] = ()
    patience_seconds: float = PATIENCE_SECONDS
    name: str = ""

    def qualified(self, schema_id: object) -> str:
        """Returns the id as it is recorded."""
        return f"{self.name}/{schema_id}" if self.name else str(schema_id)

    def id_of(self, recorded: str) -> int | str:
        """Returns the id that is recorded so."""
        text = recorded.removeprefix(f"{self.name}/") if self.name else recorded
        return int(text) if text.isdecimal() else text

    def __repr__(self) -> str:
        urls = ", ".join(map(shown_url, self.urls))
        return f"RegistryAccess({urls}; { {name: redacted_value(name, value) for name, value in self.properties} })"


def clients(access: RegistryAccess) -> tuple[tuple[str, SchemaRegistryClient], ...]:
    """Makes one client for each address, with the address as errors may show it."""
    if not access.urls:
        raise ConfigError("schema.registry.url is empty. Name at least one http:// or https:// address.")
    settings = _settings(access)
    hide = redactor(access)
    named_clients = []
    for url in access.urls:
        try:
            named_clients.append((shown_url(url), _client(url, settings)))
        except (ValueError, TypeError, OSError) as error:
            # Without the cause, which may contain a secret.
            reason = hide.text(str(error))
            raise ConfigError(f"schema registry {shown_url(url)}: {reason}. Correct its settings.") from None
    return tuple(named_clients)


def redactor(access: RegistryAccess) -> Redactor:
    """Makes a redactor that knows the secrets of `access`, also in the form in which a server may repeat them."""
    return Redactor(_secrets(access))


def shown_url(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def _settings(access: RegistryAccess) -> dict[str, Any]:
    settings: dict[str, Any] = {name: value for name, value in access.properties if value}
    for name, value in settings.items():
        if name in _OURS:
            raise ConfigError(f"schema.registry.{name}: the sink sets retries and caches itself. Remove it.")
        if name in _FILES and not Path(value).exists():
            raise ConfigError(f"schema.registry.{name}: {value} does not exist on this host. Correct the path.")
    if settings.get(_LOGIN_SOURCE) in ("USER_INFO", "URL"):
        del settings[_LOGIN_SOURCE]
    try:
        settings["timeout"] = float(settings.get("timeout", REQUEST_SECONDS))
    except ValueError:
        raise ConfigError("schema.registry.timeout: not a number of seconds. Correct it.") from None
    return settings | {"max.retries": 0}


def _client(url: str, settings: dict[str, Any]) -> SchemaRegistryClient:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("not an http:// or https:// address")
    login_settings = dict(settings)
    if parts.username is not None:
        if LOGIN in login_settings:
            raise ValueError(f"the login is in the address and in schema.registry.{LOGIN}. Keep one of them.")
        login_settings[LOGIN] = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    # The import takes 20 MB, and few sinks have a registry.
    from confluent_kafka.schema_registry import SchemaRegistryClient

    return SchemaRegistryClient({**login_settings, "url": bare.geturl()})


def _secrets(access: RegistryAccess) -> Iterator[str]:
    logins = [value for name, value in access.properties if looks_secret(name)]
    for url in access.urls:
        userinfo = url.partition("://")[2].rpartition("@")[0]
        logins += [userinfo, unquote(userinfo)]
    for login in logins:
        yield from (login, login.partition(":")[2], base64.b64encode(login.encode()).decode())
