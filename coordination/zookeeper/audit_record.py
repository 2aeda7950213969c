"""Records the answer of the last `sink audit`, for the workers' metrics.

The record means nothing to the protocol, and nothing waits for it: an unreadable one counts as missing. Raises
OtherVersion (nothing was written) and Unavailable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kazoo.client import KazooClient

from coordination.state import tree
from coordination.state.require import require_flag, require_seconds, require_str
from coordination.zookeeper.records import Records


@dataclass(frozen=True, slots=True)
class AuditAnswer:
    """`ended` in seconds since 1970; `summary` is the sentence that the command printed."""

    held: bool
    ended: float
    summary: str


class AuditRecord:
    """The record of one sink."""

    def __init__(self, client: KazooClient, root: str) -> None:
        self._records = Records(client, root)

    def last(self) -> AuditAnswer | None:
        return self._records.read(tree.AUDIT, _build)

    def record(self, answer: AuditAnswer) -> bool:
        """Writes the answer. Returns False, and writes nothing, where ZooKeeper has no tree of the sink."""
        if self._records.read(tree.KEEPER, lambda d: d) is None:
            return False
        document = {"held": int(answer.held), "ended": answer.ended, "summary": answer.summary}
        self._records.write(tree.AUDIT, document)
        return True


def _build(d: Any) -> AuditAnswer:
    return AuditAnswer(require_flag(d["held"]), require_seconds(d["ended"]), require_str(d["summary"]))
