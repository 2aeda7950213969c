"""A worker that leads too many sinks hands some over, and a fair share stays where it is."""

from __future__ import annotations

import random

from coordination.zookeeper.worker_records import HostedRecord, WorkerRecord
from sink.runtime.spreading import to_hand_over


def worker(name: str, leads: str, joined: str = "abcdef", draining: bool = False) -> WorkerRecord:
    sinks = {sink: HostedRecord("joined", sink in leads) for sink in joined}
    return WorkerRecord(name, "host", 1, "1", draining, sinks)


def test_one_who_leads_two_more_than_another_hands_over_one_at_a_time() -> None:
    fleet = (worker("w1", "abcdef"), worker("w2", ""))
    assert to_hand_over("w1", fleet, ()) == "a"
    assert to_hand_over("w1", fleet, ("a",)) == "b"
    assert to_hand_over("w1", fleet, ("a", "b")) == "c"
    assert to_hand_over("w1", fleet, ("a", "b", "c")) is None


def test_a_fair_share_stays() -> None:
    assert to_hand_over("w1", (worker("w1", "abc"), worker("w2", "def")), ()) is None
    assert to_hand_over("w1", (worker("w1", "abcd", "abcdefg"), worker("w2", "efg", "abcdefg")), ()) is None
    assert to_hand_over("w2", (worker("w1", "abcdef"), worker("w2", "")), ()) is None
    assert to_hand_over("w1", (worker("w1", "abcdef"),), ()) is None


def test_a_worker_that_drains_or_has_not_joined_the_sink_is_given_nothing() -> None:
    assert to_hand_over("w1", (worker("w1", "abcdef"), worker("w2", "", draining=True)), ()) is None
    assert to_hand_over("w1", (worker("w1", "abcdef"), worker("w2", "", joined="")), ()) is None
    assert to_hand_over("w1", (worker("w1", "abcdef"), worker("w2", "", joined="d")), ()) == "d"
    assert to_hand_over("w1", (worker("w1", "abcdef", draining=True), worker("w2", "")), ()) is None


def test_whatever_the_start_and_whoever_takes_over_the_shares_become_even_and_stay_so() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        sinks = [f"s{number:02d}" for number in range(rng.randint(2, 30))]
        names = [f"w{number}" for number in range(rng.randint(2, 4))]
        leader = {sink: rng.choice(names) for sink in sinks}
        for _ in range(300):
            records = [
                WorkerRecord(
                    name, "h", 1, "1", False, {sink: HostedRecord("joined", leader[sink] == name) for sink in sinks}
                )
                for name in names
            ]
            moves = [(name, sink) for name in names if (sink := to_hand_over(name, records, ())) is not None]
            if not moves:
                break
            name, sink = rng.choice(moves)
            # The next in the queue, as kazoo's lock has it: not always the one that leads least.
            leader[sink] = rng.choice([other for other in names if other != name])
        shares = [sum(1 for by in leader.values() if by == name) for name in names]
        assert max(shares) - min(shares) < 2, (seed, shares)


def test_a_sink_that_ails_counts_for_nobody_and_is_not_handed_over() -> None:
    ill = {sink: HostedRecord("joined", True, ailing=sink == "a") for sink in "abc"}
    first = WorkerRecord("w1", "host", 1, "1", False, ill)
    assert to_hand_over("w1", (first, worker("w2", "d")), ()) is None
    assert to_hand_over("w1", (first, worker("w2", "")), ()) == "b"
    # It has just come from a worker that knows what it ails from.
    knows = WorkerRecord(
        "w2", "host", 1, "1", False, {**worker("w2", "d").sinks, "a": HostedRecord("joined", False, ailing=True)}
    )
    assert to_hand_over("w1", (worker("w1", "abc"), knows), ()) is None
