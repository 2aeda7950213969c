"""Settings of the worker's HTTP server: its address, its token and its certificate."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any

from pydantic import BeforeValidator

from sink.config.fields import Secret, SettingGroup, TextFile, setting
from sink.config.values import HostNames, check_address, require_str

LOOPBACK = "127.0.0.1"
PORT = 8490
OFF = "none"


def listen_address(value: Any) -> str:
    """Returns `host:port`, or `none`. A port alone is a port of loopback."""
    text = str(value) if type(value) is int else require_str(value).strip()
    if text.lower() in (OFF, "off", "0"):
        return OFF
    address = f"{LOOPBACK}:{text}" if text.isascii() and text.isdigit() else text
    try:
        check_address(address, port_required=True)
    except ValueError as error:
        raise ValueError(
            f"is not an address. Write it like {LOOPBACK}:{PORT}, 0.0.0.0:{PORT} for any address of the host, a port"
            f" alone for loopback, or {OFF}."
        ) from error
    return address


ListenAddress = Annotated[str, BeforeValidator(listen_address)]


class HttpSettings(SettingGroup):
    http_listen: ListenAddress = setting(
        "http.listen",
        "Address of the worker's page, health checks, status and metrics: `host:port`, a port alone for loopback, or"
        " `none`. The default is left out, with a warning, where another worker of the host has it already.",
        default=f"{LOOPBACK}:{PORT}",
    )
    http_token: Secret | None = setting(
        "http.token",
        "What a client has to send (`Authorization: Bearer ...`) to change something: pause, resume, flush, drain,"
        " switchover. Without it nobody can by HTTP. Looking takes none.",
        default=None,
    )
    http_hosts: HostNames = setting(
        "http.hosts",
        "Further names by which clients reach this worker: a proxy in front of it, an alias. With it, and wherever"
        " `http.listen` is on loopback, a request whose `Host` is none of them, of loopback's names or of the worker's"
        " own is refused: a page of a stranger could reach the worker through a browser (DNS rebinding).",
        default=(),
    )
    http_certificate: TextFile = setting(
        "http.tls.cert.file", "The server's certificate and its chain (PEM): with it, only TLS is served.", default=None
    )
    http_key: TextFile = setting("http.tls.key.file", "The private key of that certificate (PEM).", default=None)

    @property
    def http_address(self) -> tuple[str, int] | None:
        """Host and port to listen at; None if nothing is served."""
        if self.http_listen == OFF:
            return None
        host, _, port = self.http_listen.rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def http_is_on_loopback(self) -> bool:
        """Whether only this host reaches the address to listen at; False if nothing is served."""
        host = self.http_address[0] if self.http_address else ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host.lower() == "localhost"
