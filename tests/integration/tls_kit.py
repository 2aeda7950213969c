"""A ZooKeeper that clients reach by TLS, with certificates of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from sink.devtools.local.servers import LOOPBACK, free_ports
from sink.devtools.local.zookeeper import ZooKeeperServer


@contextmanager
def tls_zookeeper(directory: Path) -> Iterator[tuple[ZooKeeperServer, dict[str, str]]]:
    """Yields a server that requires certificates, and the settings of a sink that has one. The server's own address is
    without TLS, for tests alone.
    """
    directory.mkdir(exist_ok=True)
    authority, secured_port = trustme.CA(), free_ports(1)[0]
    ca = directory / "ca.pem"
    authority.cert_pem.write_to_path(ca)
    server_certificate, client_certificate = (authority.issue_cert("localhost") for _ in range(2))
    server_pem = directory / "server.pem"
    server_pem.write_bytes(_pkcs8(server_certificate) + server_certificate.cert_chain_pems[0].bytes())
    (directory / "client.key").write_bytes(_pkcs8(client_certificate))
    client_certificate.cert_chain_pems[0].write_to_path(directory / "client.pem")
    settings = {
        "secureClientPort": secured_port,
        "secureClientPortAddress": LOOPBACK,
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": server_pem,
        "ssl.trustStore.location": ca,
        "ssl.clientAuth": "need",
    }
    sink_settings = {
        "zookeeper.connect": f"localhost:{secured_port}",
        "zookeeper.ssl.ca.location": str(ca),
        "zookeeper.ssl.certificate.location": str(directory / "client.pem"),
        "zookeeper.ssl.key.location": str(directory / "client.key"),
    }
    with ZooKeeperServer(directory / "zookeeper", settings=settings) as server:
        yield server, sink_settings


def _pkcs8(certificate: trustme.LeafCert) -> bytes:
    """Returns the private key in the only format that ZooKeeper reads."""
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
