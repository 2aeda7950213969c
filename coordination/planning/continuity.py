"""Checks that a commit extends the table's checkpoint without a gap or an overlap.

Guarantee: a checkpoint that passes adds to each partition exactly the offsets from where the table's checkpoint ends to
where its own does, in one piece. A partition begins elsewhere only when it is new to the table, or under a higher
generation, by which a reset or a declared gap says so. The caller holds the table lock. File ids prove nothing here:
once a batch was divided, the same offsets come under other file ids. Pure; raises nothing.
"""

from __future__ import annotations

from coordination.state.model import Checkpoint, PartitionCheckpoint, SliceResult, TopicPartition


def discontinuity(checkpoint: Checkpoint, previous: Checkpoint | None) -> str | None:
    """Tells why `checkpoint` does not continue the table's; None when it does."""
    results: dict[TopicPartition, list[SliceResult]] = {}
    for result in checkpoint.results:
        results.setdefault(result.slice.source, []).append(result)
    table_ends = previous.ends if previous else {}
    for source in sorted({*results, *checkpoint.ends, *table_ends}):
        checkpoint_end = checkpoint.ends.get(source)
        if checkpoint_end is None:
            return f"{source} is not in its checkpoint"
        problem = _partition_discontinuity(source, results.get(source, []), checkpoint_end, table_ends.get(source))
        if problem is not None:
            return problem
    return None


def _partition_discontinuity(
    source: TopicPartition,
    results: list[SliceResult],
    checkpoint_end: PartitionCheckpoint,
    previous: PartitionCheckpoint | None,
) -> str | None:
    if previous is not None and checkpoint_end.generation < previous.generation:
        return f"{source} is of generation {checkpoint_end.generation}, the table's of {previous.generation}"
    goes_on = previous is not None and checkpoint_end.generation == previous.generation
    next_offset = previous.end if previous is not None and goes_on else None
    for piece in sorted(result.slice for result in results):
        if piece.generation != checkpoint_end.generation:
            return f"{piece} is of generation {piece.generation}, its checkpoint of {checkpoint_end.generation}"
        if next_offset is not None and piece.start != next_offset:
            return f"{piece} follows offset {next_offset}"
        next_offset = piece.end
    if next_offset is not None and next_offset != checkpoint_end.end:
        return f"{source} ends at {next_offset}, its checkpoint says {checkpoint_end.end}"
    return None
