"""Kafka's command-line tools, for tests."""

from __future__ import annotations

import re
from pathlib import Path

from sink.clients.java import fetch
from sink.devtools.jars import KAFKA, kafka_jars


def tools_jars() -> list[Path]:
    """Returns the jars that the tools need beside a broker's, downloaded if missing."""
    version = KAFKA[0].rpartition(":")[2]
    # The artifact depends on Kafka Connect, which brings a web server.
    connect = ["connect-api", "connect-json", "connect-runtime", "connect-transforms"]
    broker_jars = sorted({re.sub(r"-\d[^-]*$", "", jar.stem) for jar in kafka_jars()})
    return fetch("kafka-tools", (f"org.apache.kafka:kafka-tools:{version}",), without=[*broker_jars, *connect])
