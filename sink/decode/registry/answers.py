"""Classifies failed requests to a Schema Registry: final answers, and failures that another request may not have.

Guarantee: final are only the registry's own error codes for an unknown subject, version or schema, HTTP 401 and 403,
and a certificate that one of the two sides does not trust. `final_error` returns None for any other failure. Raises
nothing.
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

_UNKNOWN = (40401, 40402, 40403)
"""Error codes in the body of the registry's 404: no such subject, version or schema. A 404 without one of them comes
from a wrong path or a proxy."""
_MOST_SHOWN = 200
"""Characters of an error in a message."""


class RegistryUnavailable(Unavailable):
    """The registry gave no final answer in time. Another attempt may succeed."""


class UnknownSchema(SinkError):
    """The registry has no such id, subject or version."""


class BrokenSchema(ConfigError):
    """No record can be read with this registered schema: its kind is unknown, it refers to itself, or it refers to too
    many others.
    """


def final_error(error: Exception, url: str, request: str) -> SinkError | None:
    """Returns the error to raise if `error` is a final answer of the registry at `url`, else None. `request` names what
    was asked for, like "schema id 7".
    """
    if server_error := _server_error(error):
        if server_error.http_status_code == 404 and server_error.error_code in _UNKNOWN:
            return UnknownSchema(f"schema registry {url} has no {request} (error code {server_error.error_code})")
        if server_error.http_status_code in (401, 403):
            return ConfigError(
                f"schema registry {url} refuses access to {request} (HTTP {server_error.http_status_code}). Check"
                f" schema.registry.{LOGIN} (user:password), and the permissions of that user."
            )
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return ConfigError(
                f"schema registry {url}: its certificate is not trusted ({cause.verify_message}). Check that"
                " schema.registry.ssl.ca.location has its issuer, and that the certificate names this host."
            )
        if isinstance(cause, ssl.SSLError) and "ALERT" in str(cause.reason) and "CERT" in str(cause.reason):
            return ConfigError(
                f"schema registry {url}: it refuses the worker's certificate, or requires one ({cause.reason}). Check"
                " schema.registry.ssl.certificate.location and schema.registry.ssl.key.location."
            )
    return None


def reason(error: Exception, redactor: Redactor) -> str:
    """Returns the error as one short line without secrets."""
    message = redactor.text(" ".join(str(error).split())) or "no reason given"
    server_error = _server_error(error)
    prefix = f"HTTP {server_error.http_status_code}" if server_error else type(error).__name__
    return f"{prefix}, {message[:_MOST_SHOWN]}"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yields the error and the chain of its causes: an HTTP client wraps the error of the TLS library."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _server_error(error: Exception) -> SchemaRegistryError | None:
    """Returns the error if it is an HTTP response of the registry or of a proxy."""
    from confluent_kafka.schema_registry import SchemaRegistryError

    return error if isinstance(error, SchemaRegistryError) else None
