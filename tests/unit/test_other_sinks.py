"""Offsets that another sink of the table has landed are found by its newest checkpoint, active or archived."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from coordination.errors import OtherVersion
from coordination.state.codec import encode_checkpoint
from coordination.state.model import Checkpoint, PartitionCheckpoint, Slice, SliceResult, TopicPartition
from coordination.state.versions import PROTOCOL
from sink.hudi.instants import Instant
from sink.hudi.other_sinks import CHECKPOINT_KEY, OtherSinks

T0 = TopicPartition("t", 0)


def instant(number: int) -> Instant:
    return Instant(f"{number:017d}", "commit", "COMPLETED", f"{number + 1:017d}")


def checkpoint(sink: str, number: int, end: int, *slices: tuple[int, int], topic_id: str = "id") -> Checkpoint:
    results = tuple(SliceResult(Slice("t", 0, *bounds, topic_id, 0), 1, 0, 0) for bounds in slices)
    ends = {T0: PartitionCheckpoint(end, 0)}
    return Checkpoint(sink, "keeper", "cluster", 1, number, number - 1, "c", {"t": topic_id}, ends, results)


def extra(committed: Checkpoint) -> dict[str, str]:
    return {"schema": "{}", CHECKPOINT_KEY + committed.sink: encode_checkpoint(committed)}


@pytest.mark.parametrize("is_archived", [False, True])
def test_the_newest_checkpoint_of_each_other_sink_counts(is_archived: bool) -> None:
    others = OtherSinks("mine")
    for number, end in ((2, 20), (1, 10)):
        others.add(instant(number), extra(checkpoint("theirs", number, end)), "here", is_archived)
    others.add(instant(3), extra(checkpoint("mine", 1, 90)), "here", is_archived)
    assert others.conflict(checkpoint("mine", 2, 110, (90, 100), (100, 110))) == ""
    assert others.conflict(checkpoint("mine", 2, 30, (20, 30))) == ""
    assert others.conflict(checkpoint("mine", 2, 30, (19, 30), topic_id="another")) == ""
    told = others.conflict(checkpoint("mine", 2, 30, (19, 30)))
    assert told.startswith("sink theirs has landed t-0 up to offset 20 into this table, and sink mine would land it")
    others.forget(())
    assert (others.conflict(checkpoint("mine", 2, 30, (19, 30))) == told) == is_archived


@pytest.mark.parametrize("is_archived", [False, True])
def test_a_checkpoint_of_another_sink_and_version_is_refused(is_archived: bool) -> None:
    document = {**json.loads(encode_checkpoint(checkpoint("theirs", 2, 20))), "format": PROTOCOL + 1}
    with pytest.raises(OtherVersion, match=f"protocol version {PROTOCOL + 1}"):
        OtherSinks("mine").add(instant(1), {CHECKPOINT_KEY + "theirs": json.dumps(document)}, "here", is_archived)


def test_a_checkpoint_of_another_sink_that_cannot_be_read_is_left_to_that_sink() -> None:
    others = OtherSinks("mine")
    broken = {CHECKPOINT_KEY + "theirs": "{", **extra(replace(checkpoint("third", 1, 10), gaps=()))}
    others.add(instant(1), broken, "here", False)
    assert instant(1) in others
    assert "sink third has landed" in others.conflict(checkpoint("mine", 1, 10, (0, 10)))
