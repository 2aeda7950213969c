"""Settings of the ZooKeeper ensemble. A worker's process has one session with it."""

from __future__ import annotations

from typing import Annotated, Literal

from sink.clients.zookeeper.ensemble import EnsembleAccess
from sink.config.fields import Choice, Secret, SettingGroup, TextFile, setting
from sink.config.values import DurationMs, Ensemble, Text, ZnodePath


class ZooKeeperSettings(SettingGroup):
    zookeeper: Ensemble = setting(
        "zookeeper.connect",
        "ZooKeeper ensemble: `host:port,...`, optionally with a `/chroot` at the end. Without a port: 2181.",
    )
    zookeeper_root: ZnodePath = setting(
        "zookeeper.root",
        "Znode below which the sinks of this fleet keep their state; `/` for the root of the tree.",
        default="/sink",
    )
    session_timeout_ms: DurationMs = setting(
        "zookeeper.session.timeout.ms",
        "How long a worker may be silent before the fleet takes it for dead. ZooKeeper itself bounds it (2"
        " to 20 of its ticks).",
        default=10_000,
        ge=1000,
        le=600_000,
    )
    zookeeper_ca: TextFile = setting(
        "zookeeper.ssl.ca.location",
        "Certificates (PEM) that ZooKeeper's may be signed by; relative to the configuration file. With it,"
        " connections are made by TLS only.",
        default=None,
    )
    zookeeper_certificate: TextFile = setting(
        "zookeeper.ssl.certificate.location",
        "The worker's own certificate (PEM), where ZooKeeper asks for one.",
        default=None,
    )
    zookeeper_key: TextFile = setting(
        "zookeeper.ssl.key.location", "The private key of that certificate (PEM).", default=None
    )
    zookeeper_key_password: Secret | None = setting(
        "zookeeper.ssl.key.password", "Password of the private key, if it has one.", default=None
    )
    zookeeper_username: Text | None = setting(
        "zookeeper.digest.username", "Name under which sessions are authenticated (scheme `digest`).", default=None
    )
    zookeeper_password: Secret | None = setting(
        "zookeeper.digest.password", "Password of `zookeeper.digest.username`.", default=None
    )
    zookeeper_acl: Annotated[Literal["open", "creator"], Choice] = setting(
        "zookeeper.acl",
        "Who may read and change znodes that workers make: anybody, or only who is authenticated as they are. The"
        " table lock's too: other writers of the table then need the same name.",
        default="open",
    )

    @property
    def ensemble(self) -> EnsembleAccess:
        """How the process reaches ZooKeeper; it includes secrets."""
        name, password, key_password = self.zookeeper_username, self.zookeeper_password, self.zookeeper_key_password
        return EnsembleAccess(
            self.zookeeper,
            self.session_timeout_ms / 1000,
            self.zookeeper_ca,
            self.zookeeper_certificate,
            self.zookeeper_key,
            key_password.get_secret_value() if key_password else "",
            f"{name}:{password.get_secret_value()}" if name is not None and password is not None else "",
            self.zookeeper_acl == "creator",
        )
