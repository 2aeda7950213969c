"""Checks that a commit extends the table's checkpoint without a gap or an overlap.

Guarantee: a checkpoint that passes adds to each partition exactly the offsets from where the table's checkpoint ends to
where its own does, in one piece. A partition begins elsewhere only when it is new to the table, or under a higher
generation, by which a reset or a declared gap says so. The caller holds the table lock. File ids prove nothing here:
once a batch was divided, the same offsets come under other file ids. Pure; raises nothing.
"""

from __future__ import annotations

from coordination.state.model import Checkpoint, PartitionCheckpoint, SliceResult, TopicPartition


def discontinuity(checkpoint: Checkpoint, before: Checkpoint | None) -> str | None:
    """Tells why `checkpoint` does not continue the table's; None when it does."""
    results: dict[TopicPartition, list[SliceResult]] = {}
    for result in checkpoint.results:
        results.setdefault(result.slice.source, []).append(result)
    table_ends = before.ends if before else {}
    for source in sorted({*results, *checkpoint.ends, *table_ends}):
        reached = checkpoint.ends.get(source)
        if reached is None:
            return f"{source} is not in its checkpoint"
        broken = _broken(source, results.get(source, []), reached, table_ends.get(source))
        if broken is not None:
            return broken
    return None


def _broken(
    source: TopicPartition,
    results: list[SliceResult],
    reached: PartitionCheckpoint,
    before: PartitionCheckpoint | None,
) -> str | None:
    if before is not None and reached.generation < before.generation:
        return f"{source} is of generation {reached.generation}, the table's of {before.generation}"
    goes_on = before is not None and reached.generation == before.generation
    at = before.end if before is not None and goes_on else None
    for piece in sorted(result.slice for result in results):
        if piece.generation != reached.generation:
            return f"{piece} is of generation {piece.generation}, its checkpoint of {reached.generation}"
        if at is not None and piece.start != at:
            return f"{piece} follows offset {at}"
        at = piece.end
    if at is not None and at != reached.end:
        return f"{source} ends at {at}, its checkpoint says {reached.end}"
    return None
