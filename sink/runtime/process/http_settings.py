"""The HTTP server's share of a process's settings."""

from __future__ import annotations

from sink.config import ProcessSettings
from sink.http.specification import HttpSpecification


def http_specification(process: ProcessSettings) -> HttpSpecification:
    return HttpSpecification(
        process.http_address,
        "http_listen" in process.model_fields_set,
        process.http_is_on_loopback,
        process.http_hosts,
        process.http_certificate,
        process.http_key,
        process.http_token.get_secret_value() if process.http_token else "",
    )
