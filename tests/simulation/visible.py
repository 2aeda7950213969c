"""The view of the table's readers: each offset of a partition once, without a hole, from the start of reading."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from coordination.state.model import Checkpoint, Gap, PartitionCheckpoint, PartitionState, Slice, TopicPartition
from tests.simulation.violation import Violation


def gaps_of(source: TopicPartition, gaps: Iterable[Gap]) -> list[Gap]:
    return [gap for gap in gaps if (gap.topic, gap.partition) == (source.topic, source.partition)]


def beyond(at: int, limit: int, gaps: Collection[Gap]) -> int:
    """Returns the first offset from `at` on, up to `limit`, that is in no gap."""
    while at < limit and (ends := [gap.end for gap in gaps if gap.start <= at < gap.end]):
        at = min(limit, max(ends))
    return at


class Visible:
    """The present reading of each partition. A commit that carries an operator's move begins a new reading."""

    def __init__(self) -> None:
        self.newest: Checkpoint | None = None
        self.origin: dict[TopicPartition, int] = {}
        self._first: dict[TopicPartition, int] = {}
        """The origin of each partition's first reading."""
        self._ranges: dict[TopicPartition, list[tuple[int, int]]] = {}
        self._moves: dict[TopicPartition, set[tuple[int, int]]] = {}
        """Generations and positions of every move of a partition, also of moves that no commit has carried."""
        self._past_gaps: dict[TopicPartition, set[tuple[int, Gap]]] = {}
        """Gaps of readings that a move has ended, each with the generation after it."""

    @property
    def ends(self) -> Mapping[TopicPartition, PartitionCheckpoint]:
        return self.newest.ends if self.newest else {}

    def end(self, source: TopicPartition) -> int:
        """Returns the end of the visible prefix, declared gaps included."""
        ends = self.ends
        return ends[source].end if source in ends else self.origin.get(source, 0)

    def is_unseen(self, source: TopicPartition) -> bool:
        return source not in self.ends

    def move(self, source: TopicPartition, generation: int, position: int, declared: Iterable[Gap]) -> None:
        """Records an operator's move, with the gaps that were declared before it."""
        self._moves.setdefault(source, set()).add((generation, position))
        declared = (*declared, *(self.newest.gaps if self.newest else ()))
        self._past_gaps.setdefault(source, set()).update((generation, gap) for gap in gaps_of(source, declared))

    def was_moved(self, source: TopicPartition, state: PartitionState) -> bool:
        """Whether the recorded state begins where an operator's move has left the partition."""
        return (state.generation, state.start) in self._moves.get(source, ())

    def move_positions(self, source: TopicPartition, generation: int) -> list[int]:
        """Returns the positions of the partition's moves since the newest commit, up to this generation."""
        moves = self._moves.get(source)
        if not moves:
            return []
        ends = self.ends
        visible = ends[source].generation if source in ends else -1
        return [at for raised, at in moves if visible < raised <= generation]

    def is_past(self, source: TopicPartition, generation: int) -> bool:
        """Whether a later generation of the partition is visible, so that records of this one no longer count."""
        return source in self.ends and generation < self.ends[source].generation

    def covers(self, source: TopicPartition, start: int, end: int) -> bool:
        for low, high in self._ranges.get(source, ()):
            if low <= start < high:
                start = high
        return start >= end

    def add(self, checkpoint: Checkpoint, pieces: Iterable[Slice]) -> None:
        """Adds a commit, as the table's newest."""
        for source in self._moves:
            if source in checkpoint.ends:
                self._begin_anew(source, checkpoint)
        for piece in pieces:
            self._show(piece)
        self._check_prefix(checkpoint)
        self.newest = checkpoint

    def begin_again(self, commits: Iterable[tuple[Checkpoint, Iterable[Slice]]]) -> None:
        """Begins again with a table that has exactly these commits."""
        self.newest = None
        self._ranges.clear()
        self.origin = dict(self._first)
        for checkpoint, pieces in commits:
            self.add(checkpoint, pieces)

    def begins_as_recorded(self, states: Mapping[TopicPartition, PartitionState]) -> None:
        """Sets the origins of partitions that no commit contains to the starts of these states."""
        self._forget_unseen(self.origin)
        for source, state in states.items():
            self.begins(source, state.start)

    def begins(self, source: TopicPartition, start: int) -> None:
        """Sets the origin of a partition, unless the partition is being read already."""
        if source not in self.origin:
            self.origin[source] = self._first[source] = start

    def begins_as_in(self, checkpoint: Checkpoint) -> None:
        """Sets the origins of partitions that no commit contains from this checkpoint, not from ZooKeeper's records."""
        self._forget_unseen(checkpoint.ends)
        for source, table_end in checkpoint.ends.items():
            pieces = [result.slice for result in checkpoint.results if result.slice.source == source]
            self.begins(source, min((piece.start for piece in pieces), default=table_end.end))

    def _forget_unseen(self, sources: Iterable[TopicPartition]) -> None:
        for source in self.origin.keys() & set(sources) - {*self._ranges, *self.ends}:
            del self.origin[source]

    def _begin_anew(self, source: TopicPartition, checkpoint: Checkpoint) -> None:
        """Begins a new reading if the commit does not continue the partition where it was: an operator moved it."""
        table_end = checkpoint.ends[source]
        positions = self.move_positions(source, table_end.generation)
        is_new = source not in self.ends and source not in self.origin
        if not positions or is_new:
            return
        previous = self.newest
        gaps = gaps_of(source, checkpoint.gaps)
        starts = [result.slice.start for result in checkpoint.results if result.slice.source == source]
        first = min(starts, default=table_end.end)
        # An interrupted reset may not have moved it: a partition that no commit contains goes on where it is recorded.
        topic_id = previous.topics[source.topic] if previous and source in previous.ends else None
        is_same_topic = topic_id in (None, checkpoint.topics[source.topic])
        if is_same_topic and beyond(self.end(source), first, gaps) == first:
            return
        matching = [at for at in positions if beyond(at, first, gaps) == first]
        if not matching:
            raise Violation("a partition goes on where it was or was moved to", f"{source}: {first}, {positions}")
        if is_same_topic and source in self.ends and min(matching) > self.end(source):
            raise Violation("what is left out is declared a gap", f"{source}: {self.end(source)} to {matching}")
        self._ranges.pop(source, None)
        self.origin[source] = min(matching)

    def _show(self, piece: Slice) -> None:
        source, start, end = piece.source, piece.start, piece.end
        self.begins(source, start)
        visible = self._ranges.setdefault(source, [])
        for low, high in visible:
            if start < high and low < end:
                raise Violation("no offset is visible twice", f"{source} [{start}, {end}) and [{low}, {high})")
        visible.append((start, end))
        visible.sort()

    def _check_prefix(self, checkpoint: Checkpoint) -> None:
        """Checks that visible offsets and declared gaps form a prefix, and that the checkpoint is its end."""
        for source, table_end in checkpoint.ends.items():
            at = self.origin.get(source)
            gaps = gaps_of(source, checkpoint.gaps)
            for low, high in self._ranges.get(source, ()):
                at = low if at is None else beyond(at, low, gaps)
                if low > at:
                    raise Violation("no hole in the visible prefix", f"{source} [{at}, {low})")
                at = max(at, high)
            if at is None:
                continue
            past_gaps = {gap for raised, gap in self._past_gaps.get(source, ()) if raised <= table_end.generation}
            at = max([beyond(at, table_end.end, gaps), *(gap.end for gap in gaps if gap not in past_gaps)])
            if at != table_end.end:
                raise Violation("the checkpoint is what is visible", f"{source}: {table_end.end}, visible to {at}")
        for source in self._ranges:
            if source not in checkpoint.ends:
                raise Violation("the checkpoint is cumulative", f"{source} is not in {checkpoint.number}")
