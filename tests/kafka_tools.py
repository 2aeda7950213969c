"""Kafka's own command line, for tests."""

from __future__ import annotations

import re
from pathlib import Path

from sink.clients import artifacts


def tools_jars() -> list[Path]:
    """The jars that it needs beside a broker's."""
    version = artifacts.KAFKA[0].rpartition(":")[2]
    # Kafka Connect is a part of it, with a web server.
    connect = ["connect-api", "connect-json", "connect-runtime", "connect-transforms"]
    own = sorted({re.sub(r"-\d[^-]*$", "", jar.stem) for jar in artifacts.kafka_jars()})
    return artifacts.fetch("kafka-tools", (f"org.apache.kafka:kafka-tools:{version}",), without=[*own, *connect])
