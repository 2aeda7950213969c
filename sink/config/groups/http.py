"""Settings of the worker's HTTP server: its address, its token and its certificate."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any

from pydantic import BeforeValidator

from sink.config.fields import Secret, SettingGroup, TextFile, setting
from sink.config.values import HostNames, check_address, require_str

LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 8490
NONE = "none"


def listen_address(value: Any) -> str:
    """Returns `host:port`; `none` for `none`, `off` and `0`. A port alone is on loopback. Raises ValueError."""
    text = require_str(value)
    if text.lower() in (NONE, "off", "0"):
        return NONE
    address = f"{LOOPBACK}:{text}" if text.isascii() and text.isdigit() else text
    try:
        check_address(address, port_required=True)
    except ValueError as error:
        raise ValueError(
            f"is not an address. Write it like {LOOPBACK}:{DEFAULT_PORT}, 0.0.0.0:{DEFAULT_PORT} for all addresses of"
            f" the host, a port alone for loopback, or {NONE}."
        ) from error
    return address


ListenAddress = Annotated[str, BeforeValidator(listen_address)]


class HttpSettings(SettingGroup):
    http_listen: ListenAddress = setting(
        "http.listen",
        "Address of the worker's page, health checks, status and metrics: `host:port`, a port alone for loopback, or"
        " `none`. If the default cannot be bound, because another worker on the host has it, the worker logs a warning"
        " and serves no HTTP.",
        default=f"{LOOPBACK}:{DEFAULT_PORT}",
    )
    http_token: Secret | None = setting(
        "http.token",
        "Token that a client must send (`Authorization: Bearer ...`) to pause, resume, flush, drain or switch over."
        " Without this setting, nobody can do so by HTTP. Reading needs no token.",
        default=None,
    )
    http_hosts: HostNames = setting(
        "http.hosts",
        "Further host names of this worker, such as a proxy's or an alias. If this is set, or `http.listen` is on"
        " loopback, the worker refuses a request whose `Host` is neither one of them nor a name of loopback nor the"
        " worker's own. Else a stranger's web page could reach the worker through a browser (DNS rebinding).",
        default=(),
    )
    http_certificate: TextFile = setting(
        "http.tls.cert.file",
        "The server's certificate and its chain (PEM). With it, the worker serves only TLS.",
        default=None,
    )
    http_key: TextFile = setting("http.tls.key.file", "The private key of that certificate (PEM).", default=None)

    @property
    def http_address(self) -> tuple[str, int] | None:
        """Host and port to listen on; None if the worker serves no HTTP."""
        if self.http_listen == NONE:
            return None
        host, _, port = self.http_listen.rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def http_is_on_loopback(self) -> bool:
        """Whether the worker listens on loopback only; False if it serves no HTTP."""
        host = self.http_address[0] if self.http_address else ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host.lower() == "localhost"
