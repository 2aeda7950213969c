"""Tells final answers of a Schema Registry from failures after which another request may succeed.

Guarantee: only the registry's own error codes and a failed certificate check are final; for any other failure
`final_error` returns None. Raises nothing.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING

from coordination.errors import ConfigError, SinkError, Unavailable
from sink.decode.registry.access import LOGIN
from sink.telemetry.redaction import Redactor

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryError

_NOT_THERE = (40401, 40402, 40403)
"""No such subject, version or schema. Any other 404 comes from a wrong path or a proxy."""
_SHORT = 200


class RegistryUnavailable(Unavailable):
    """The registry gave no final answer in time. Another attempt may succeed."""


class UnknownSchema(SinkError):
    """The registry has no such id, subject or version."""


class BrokenSchema(ConfigError):
    """A registered schema with which no record can be read: of an unknown kind, or with references without an end."""


def final_error(error: Exception, url: str, request: str) -> SinkError | None:
    """Returns the error to raise if `error` is a final answer to the request for `request` at `url`, else None."""
    if server_error := _server_error(error):
        if server_error.http_status_code == 404 and server_error.error_code in _NOT_THERE:
            return UnknownSchema(f"schema registry {url} has no {request} (error code {server_error.error_code})")
        if server_error.http_status_code in (401, 403):
            return ConfigError(
                f"schema registry {url} refuses access to {request} (HTTP {server_error.http_status_code}). Check"
                f" schema.registry.{LOGIN} (user:password), and the rights of that user."
            )
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return ConfigError(
                f"schema registry {url}: its certificate is not trusted ({cause.verify_message}). Check that"
                " schema.registry.ssl.ca.location has its issuer, and that the certificate names this host."
            )
        if isinstance(cause, ssl.SSLError) and "ALERT" in str(cause.reason) and "CERT" in str(cause.reason):
            return ConfigError(
                f"schema registry {url}: it refuses the client certificate, or wants one ({cause.reason}). Check"
                " schema.registry.ssl.certificate.location and schema.registry.ssl.key.location."
            )
    return None


def reason(error: Exception, redactor: Redactor) -> str:
    """Returns the error as one short line without secrets."""
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
