"""Tells final answers of a Schema Registry from those that are worth another request.

Guarantee: only a registry's own words and a failed check of certificates decide anything; for every other outcome, of
which there is no list, `definite` gives None. Raises nothing.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING

from coordination.errors import ConfigError, SinkError, Unavailable
from sink.decode.registry_access import LOGIN
from sink.telemetry.redaction import Redactor

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryError

_NOT_THERE = (40401, 40402, 40403)
"""Subject, version, schema. Another 404 comes from a path that is no registry's, or from a proxy."""
_SHORT = 200


class RegistryUnavailable(Unavailable):
    """No definite answer within patience. Worth trying again."""


class UnknownSchema(SinkError):
    """The registry says that it has no such id, subject or version."""


def definite(error: Exception, url: str, wanted: str) -> SinkError | None:
    """The final meaning of `error` when `what` was asked for at `url`."""
    if server_error := _server_error(error):
        if server_error.http_status_code == 404 and server_error.error_code in _NOT_THERE:
            return UnknownSchema(f"schema registry {url} has no {wanted} (error code {server_error.error_code})")
        if server_error.http_status_code in (401, 403):
            return ConfigError(
                f"schema registry {url} refuses access to {wanted} (HTTP {server_error.http_status_code}); check"
                f" schema.registry.{LOGIN} (user:password), and what that user may read"
            )
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return ConfigError(
                f"schema registry {url}: its certificate is not trusted ({cause.verify_message}); check that"
                " schema.registry.ssl.ca.location names who signed it, and that the address is one it names"
            )
        if isinstance(cause, ssl.SSLError) and "ALERT" in str(cause.reason) and "CERT" in str(cause.reason):
            return ConfigError(
                f"schema registry {url}: it does not take our certificate, or asks for one ({cause.reason}); check"
                " schema.registry.ssl.certificate.location and schema.registry.ssl.key.location"
            )
    return None


def reason(error: Exception, redactor: Redactor) -> str:
    """One short line without secrets."""
    message = redactor.text(" ".join(str(error).split())) or "no reason given"
    server_error = _server_error(error)
    prefix = f"HTTP {server_error.http_status_code}" if server_error else type(error).__name__
    return f"{prefix}, {message[:_SHORT]}"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _server_error(error: Exception) -> SchemaRegistryError | None:
    from confluent_kafka.schema_registry import SchemaRegistryError

    return error if isinstance(error, SchemaRegistryError) else None
