"""Removes the end of a partition's log on a real broker, as an unclean leader election or a restored disk does."""

from __future__ import annotations

import os

from sink.devtools.local.kafka import KafkaServer

_CHECKPOINTS = (
    ".kafka_cleanshutdown",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
)
"""With any of these files the broker would trust the log as it left it, and not read it again."""
_DERIVED = ("*.index", "*.timeindex", "*.txnindex", "*.snapshot")


def lose_end(kafka: KafkaServer, topic: str, partition: int, kept: float) -> None:
    """Keeps about the share `kept` of the newest segment's bytes. Stops the broker meanwhile, and starts it again."""
    kafka.stop()
    data = kafka.directory / "data"
    directory = data / f"{topic}-{partition}"
    newest = max(directory.glob("*.log"))
    size = newest.stat().st_size
    assert size, f"{newest} has no end to lose"
    os.truncate(newest, int(size * kept))
    derived = (path for pattern in _DERIVED for path in directory.glob(pattern))
    for path in (*(data / name for name in _CHECKPOINTS), *derived):
        path.unlink(missing_ok=True)
    kafka.start()
