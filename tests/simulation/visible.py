"""The view of the table's readers: each offset of a partition once and no hole, from where reading began."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from coordination.state.model import Checkpoint, Gap, PartitionCheckpoint, PartitionState, Slice, TopicPartition
from tests.simulation.violation import Violation


def gaps_of(source: TopicPartition, gaps: Iterable[Gap]) -> list[Gap]:
    return [gap for gap in gaps if (gap.topic, gap.partition) == (source.topic, source.partition)]


def beyond(at: int, limit: int, gaps: Collection[Gap]) -> int:
    """The first offset from `at` on, up to `limit`, that is in no gap."""
    while at < limit and (ends := [gap.end for gap in gaps if gap.start <= at < gap.end]):
        at = min(limit, max(ends))
    return at


class Visible:
    """The present reading of each partition: it begins anew where a commit carries that an operator moved it."""

    def __init__(self) -> None:
        self.newest: Checkpoint | None = None
        self.origin: dict[TopicPartition, int] = {}
        self._first: dict[TopicPartition, int] = {}
        """The origins of their first readings."""
        self._ranges: dict[TopicPartition, list[tuple[int, int]]] = {}
        self._moves: dict[TopicPartition, set[tuple[int, int]]] = {}
        """Generation and position of every partition that was moved, whether that came to anything or not."""
        self._past_gaps: dict[TopicPartition, set[tuple[int, Gap]]] = {}
        """Gaps of readings that a move has ended, each with the generation that followed."""

    @property
    def ends(self) -> Mapping[TopicPartition, PartitionCheckpoint]:
        return self.newest.ends if self.newest else {}

    def end(self, source: TopicPartition) -> int:
        """The end of the visible prefix, declared gaps included."""
        ends = self.ends
        return ends[source].end if source in ends else self.origin.get(source, 0)

    def is_unseen(self, source: TopicPartition) -> bool:
        return source not in self.ends

    def move(self, source: TopicPartition, generation: int, position: int, declared: Iterable[Gap]) -> None:
        """With the gaps that were declared before."""
        self._moves.setdefault(source, set()).add((generation, position))
        declared = (*declared, *(self.newest.gaps if self.newest else ()))
        self._past_gaps.setdefault(source, set()).update((generation, gap) for gap in gaps_of(source, declared))

    def was_moved(self, source: TopicPartition, state: PartitionState) -> bool:
        """Whether it is recorded as an operator's move has left it, or has gone on from there."""
        return (state.generation, state.start) in self._moves.get(source, ())

    def moved(self, source: TopicPartition, generation: int) -> list[int]:
        """Where it was moved, up to this generation, since the newest commit."""
        moves = self._moves.get(source)
        if not moves:
            return []
        ends = self.ends
        shown = ends[source].generation if source in ends else -1
        return [at for raised, at in moves if shown < raised <= generation]

    def is_past(self, source: TopicPartition, generation: int) -> bool:
        """Whether a later generation of it is visible: what is recorded under this one says nothing any more."""
        return source in self.ends and generation < self.ends[source].generation

    def covers(self, source: TopicPartition, start: int, end: int) -> bool:
        for low, high in self._ranges.get(source, ()):
            if low <= start < high:
                start = high
        return start >= end

    def add(self, checkpoint: Checkpoint, pieces: Iterable[Slice]) -> None:
        """A commit, as the table's newest."""
        for source in self._moves:
            if source in checkpoint.ends:
                self._begin_anew(source, checkpoint)
        for piece in pieces:
            self._show(piece)
        self._is_the_truth(checkpoint)
        self.newest = checkpoint

    def begin_again(self, commits: Iterable[tuple[Checkpoint, Iterable[Slice]]]) -> None:
        """The table has these commits, and no others."""
        self.newest = None
        self._ranges.clear()
        self.origin = dict(self._first)
        for checkpoint, pieces in commits:
            self.add(checkpoint, pieces)

    def begins_as_recorded(self, states: Mapping[TopicPartition, PartitionState]) -> None:
        """Partitions that no commit has shown begin where these states say."""
        self._forget_unseen(self.origin)
        for source, state in states.items():
            self.begins(source, state.start)

    def begins(self, source: TopicPartition, start: int) -> None:
        """Unless it is being read: it is read from there."""
        if source not in self.origin:
            self.origin[source] = self._first[source] = start

    def begins_as_in(self, checkpoint: Checkpoint) -> None:
        """Partitions that no commit has shown begin where this checkpoint says, whatever is recorded."""
        self._forget_unseen(checkpoint.ends)
        for source, reached in checkpoint.ends.items():
            pieces = [result.slice for result in checkpoint.results if result.slice.source == source]
            self.begins(source, min((piece.start for piece in pieces), default=reached.end))

    def _forget_unseen(self, sources: Iterable[TopicPartition]) -> None:
        for source in self.origin.keys() & set(sources) - {*self._ranges, *self.ends}:
            del self.origin[source]

    def _begin_anew(self, source: TopicPartition, checkpoint: Checkpoint) -> None:
        """A partition that does not go on where it was was moved."""
        reached = checkpoint.ends[source]
        moved = self.moved(source, reached.generation)
        unknown = source not in self.ends and source not in self.origin
        if not moved or unknown:
            return
        before = self.newest
        gaps = gaps_of(source, checkpoint.gaps)
        starts = [result.slice.start for result in checkpoint.results if result.slice.source == source]
        first = min(starts, default=reached.end)
        # An interrupted reset may not have moved it: what nothing was shown of goes on where it is recorded.
        shown = before.topics[source.topic] if before and source in before.ends else None
        same = shown in (None, checkpoint.topics[source.topic])
        if same and beyond(self.end(source), first, gaps) == first:
            return
        places = [at for at in moved if beyond(at, first, gaps) == first]
        if not places:
            raise Violation("a partition goes on where it was or was moved to", f"{source}: {first}, {moved}")
        if same and source in self.ends and min(places) > self.end(source):
            raise Violation("what is left out is declared a gap", f"{source}: {self.end(source)} to {places}")
        self._ranges.pop(source, None)
        self.origin[source] = min(places)

    def _show(self, piece: Slice) -> None:
        source, start, end = piece.source, piece.start, piece.end
        self.begins(source, start)
        shown = self._ranges.setdefault(source, [])
        for low, high in shown:
            if start < high and low < end:
                raise Violation("no offset is visible twice", f"{source} [{start}, {end}) and [{low}, {high})")
        shown.append((start, end))
        shown.sort()

    def _is_the_truth(self, checkpoint: Checkpoint) -> None:
        """The visible offsets and the declared gaps make up a prefix, and the checkpoint is its end."""
        for source, reached in checkpoint.ends.items():
            at = self.origin.get(source)
            gaps = gaps_of(source, checkpoint.gaps)
            for low, high in self._ranges.get(source, ()):
                at = low if at is None else beyond(at, low, gaps)
                if low > at:
                    raise Violation("no hole in the visible prefix", f"{source} [{at}, {low})")
                at = max(at, high)
            if at is None:
                continue
            past = {gap for raised, gap in self._past_gaps.get(source, ()) if raised <= reached.generation}
            at = max([beyond(at, reached.end, gaps), *(gap.end for gap in gaps if gap not in past)])
            if at != reached.end:
                raise Violation("the checkpoint is what is visible", f"{source}: {reached.end}, visible to {at}")
        for source in self._ranges:
            if source not in checkpoint.ends:
                raise Violation("the checkpoint is cumulative", f"{source} is not in {checkpoint.number}")
