"""Finds a librdkafka with Kerberos: the one that is installed, or the wheel that `packaging/kafka-kerberos` built."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

from confluent_kafka import KafkaException, Producer

_WHEELS = Path(__file__).parents[2] / "build" / "kerberos"


def built_wheel() -> Path | None:
    """Returns the newest wheel for this Python; None if there is none."""
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return max(_WHEELS.glob(f"confluent_kafka-*-{tag}-*.whl"), default=None, key=lambda wheel: wheel.stat().st_mtime)


def installed_has_kerberos() -> bool:
    try:
        Producer({"builtin.features": "sasl_gssapi"})
    except KafkaException:
        return False
    return True


def unpacked(wheel: Path, directory: Path) -> Path:
    """Returns a directory for `PYTHONPATH`, so that the wheel is taken without being installed."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory)
    return directory
