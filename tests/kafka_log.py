"""Takes away the end of a partition's log on a real broker, as an unclean leader election or a restored disk does."""

from __future__ import annotations

import os

from sink.devtools.local.kafka import KafkaServer

_CHECKPOINTS = (
    ".kafka_cleanshutdown",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
)
"""With any of them the broker would believe that the log is as it left it, and not look."""
_DERIVED = ("*.index", "*.timeindex", "*.txnindex", "*.snapshot")


def lose_end(kafka: KafkaServer, topic: str, partition: int, kept: float) -> None:
    """Keeps about that share of the newest segment; the broker is stopped for it, and started again."""
    kafka.stop()
    data = kafka.directory / "data"
    place = data / f"{topic}-{partition}"
    newest = max(place.glob("*.log"))
    size = newest.stat().st_size
    assert size, f"{newest} has no end to lose"
    os.truncate(newest, int(size * kept))
    for path in (*(data / name for name in _CHECKPOINTS), *(path for glob in _DERIVED for path in place.glob(glob))):
        path.unlink(missing_ok=True)
    kafka.start()
