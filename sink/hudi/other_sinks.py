"""The checkpoints of other sinks in a table, and the offsets that two sinks would land twice.

Guarantee: it knows the newest checkpoint of each other sink in the commits that it was given and not told to forget. A
checkpoint that cannot be read is left out: its own sink reports it. Pure. Raises OtherVersion for one of another
protocol version: what that sink has landed, and under which lock, is unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import chain

from coordination.errors import Corrupt, TableError
from coordination.state.codec import decode_checkpoint
from coordination.state.model import Checkpoint
from sink.hudi.instants import Instant

CHECKPOINT_KEY = "sink.checkpoint."
SPECIFICATION_KEY = "sink.specification."
"""How the records of a commit were decoded, as JSON."""


class LandedByAnother(TableError):
    """Another sink has landed offsets of this one into the table."""


class OtherSinks:
    """Collects the checkpoints of every sink but `sink`."""

    def __init__(self, sink: str) -> None:
        self._sink = sink
        self._active: dict[Instant, tuple[Checkpoint, ...]] = {}
        self._archived: dict[str, Checkpoint] = {}

    def __contains__(self, entry: Instant) -> bool:
        """Whether a commit of the active timeline carries a checkpoint of another sink."""
        return entry in self._active

    def __bool__(self) -> bool:
        """Whether there is another sink."""
        return bool(self._active or self._archived)

    def add(self, entry: Instant, extra: Mapping[str, str], origin: str, is_archived: bool) -> None:
        """Adds the checkpoints in the extra metadata of a completed commit, which `origin` names."""
        checkpoints = tuple(self._others_in(extra, origin))
        if is_archived:
            self._archived = _newest(chain(self._archived.values(), checkpoints))
        elif checkpoints:
            self._active[entry] = checkpoints

    def forget(self, listed: Collection[Instant]) -> None:
        """Forgets commits that left the active timeline. Archived ones stay."""
        self._active = {entry: checkpoints for entry, checkpoints in self._active.items() if entry in listed}

    @property
    def fingerprints(self) -> frozenset[str]:
        """The fingerprints of the schemas that these checkpoints name."""
        checkpoints = chain(self._archived.values(), *self._active.values())
        return frozenset(chain.from_iterable(checkpoint.schemas.values() for checkpoint in checkpoints))

    def conflict(self, checkpoint: Checkpoint) -> str:
        """Returns which other sink has landed offsets of this checkpoint's transaction; empty if none has."""
        others = _newest(chain(self._archived.values(), *self._active.values()))
        for slice_ in (result.slice for result in checkpoint.results):
            for name, other in sorted(others.items()):
                landed = other.ends.get(slice_.source)
                is_same_topic = other.topics.get(slice_.topic) == slice_.topic_id
                if landed is not None and is_same_topic and landed.end > slice_.start:
                    return (
                        f"sink {name} has landed {slice_.source} up to offset {landed.end} into this table, and sink"
                        f" {self._sink} would land it again from offset {slice_.start} on (transaction"
                        f" {checkpoint.number}). Stop one of the two sinks, or give it a table of its own"
                    )
        return ""

    def _others_in(self, extra: Mapping[str, str], origin: str) -> Iterator[Checkpoint]:
        for key, document in extra.items():
            if key.startswith(CHECKPOINT_KEY) and key != CHECKPOINT_KEY + self._sink:
                with suppress(Corrupt):
                    yield replace(decode_checkpoint(document, origin), results=())


def _newest(checkpoints: Iterator[Checkpoint]) -> dict[str, Checkpoint]:
    newest: dict[str, Checkpoint] = {}
    for checkpoint in checkpoints:
        if checkpoint.sink not in newest or checkpoint.number > newest[checkpoint.sink].number:
            newest[checkpoint.sink] = checkpoint
    return newest
