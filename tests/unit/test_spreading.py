"""A worker that leads too many sinks hands some over, and a fair share stays where it is."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

import pytest

from coordination.zookeeper.worker_records import HostedRecord, WorkerRecord
from sink.runtime.spreading import to_hand_over, weight


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


def weighing(name: str, leads: Mapping[str, int], joined: Iterable[str] = "abcdef") -> WorkerRecord:
    sinks = {sink: HostedRecord("joined", sink in leads, weight=leads.get(sink, 1)) for sink in joined}
    return WorkerRecord(name, "host", 1, "1", False, sinks)


def test_the_heaviest_sink_that_makes_the_shares_more_even_is_handed_over_first() -> None:
    weights = {"a": 1, "b": 12, "c": 12, "d": 60}
    handed: dict[str, int] = {}
    for sink in "bca":
        assert to_hand_over("w1", (weighing("w1", weights), weighing("w2", handed)), ()) == sink
        assert to_hand_over("w2", (weighing("w1", weights), weighing("w2", handed)), ()) is None
        handed[sink] = weights.pop(sink)
    assert to_hand_over("w1", (weighing("w1", weights), weighing("w2", handed)), ()) is None


def test_what_is_being_handed_over_counts_for_the_worker_that_will_have_it() -> None:
    fleet = (weighing("w1", {"a": 1, "b": 12, "c": 12, "d": 60}), weighing("w2", {}))
    assert to_hand_over("w1", fleet, ("b",)) == "c"
    assert to_hand_over("w1", fleet, ("b", "c")) == "a"
    assert to_hand_over("w1", fleet, ("a", "b", "c")) is None


@pytest.mark.parametrize(("interval", "expected"), [(60, 60), (1, 3600), (0.05, 3600), (7200, 1)])
def test_a_sink_weighs_as_many_transactions_as_its_interval_allows_in_an_hour(interval: float, expected: int) -> None:
    assert weight(interval) == expected


def test_a_sink_of_a_short_interval_weighs_as_much_as_many_of_long_ones() -> None:
    idle = weighing("w2", dict.fromkeys("bcdef", 1))
    assert to_hand_over("w1", (weighing("w1", {"a": 60}), idle), ()) is None
    assert to_hand_over("w2", (weighing("w1", {"a": 60}), idle), ()) is None
    assert to_hand_over("w1", (weighing("w1", {"a": 60, "b": 60}), weighing("w2", {})), ()) == "a"


def test_a_worker_that_drains_or_has_not_joined_the_sink_is_given_nothing() -> None:
    assert to_hand_over("w1", (worker("w1", "abcdef"), worker("w2", "", draining=True)), ()) is None
    assert to_hand_over("w1", (worker("w1", "abcdef"), worker("w2", "", joined="")), ()) is None
    assert to_hand_over("w1", (worker("w1", "abcdef"), worker("w2", "", joined="d")), ()) == "d"
    assert to_hand_over("w1", (worker("w1", "abcdef", draining=True), worker("w2", "")), ()) is None


def settled(weights: Mapping[str, int], names: Sequence[str], rng: random.Random) -> dict[str, str]:
    """Returns the leaders of sinks once no worker hands any over, from leaders at random."""
    leaders = {sink: rng.choice(names) for sink in weights}
    for _ in range(2000):
        records = [
            weighing(name, {sink: weights[sink] for sink, leader in leaders.items() if leader == name}, weights)
            for name in names
        ]
        moves = [(name, sink) for name in names if (sink := to_hand_over(name, records, ())) is not None]
        if not moves:
            return leaders
        name, sink = rng.choice(moves)
        # kazoo's lock goes to the next worker in the queue, which is not always the one that leads least.
        leaders[sink] = rng.choice([other for other in names if other != name])
    raise AssertionError("sinks are handed over for ever")


def test_whatever_the_start_and_whoever_takes_over_the_shares_become_even_and_stay_so() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        sinks = dict.fromkeys((f"s{number:02d}" for number in range(rng.randint(2, 30))), 60)
        names = [f"w{number}" for number in range(rng.randint(2, 4))]
        leaders = settled(sinks, names, rng)
        shares = [sum(1 for leader in leaders.values() if leader == name) for name in names]
        assert max(shares) - min(shares) < 2, (seed, shares)


def test_whatever_the_sinks_weigh_no_hand_over_could_make_the_shares_more_even() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        weights = {f"s{number:02d}": rng.choice((1, 1, 2, 12, 60)) for number in range(rng.randint(2, 30))}
        names = [f"w{number}" for number in range(rng.randint(2, 3))]
        leaders = settled(weights, names, rng)
        loads = {name: sum(weights[sink] for sink, leader in leaders.items() if leader == name) for name in names}
        lightest = min(loads.values())
        assert all(loads[leader] - lightest < 2 * weights[sink] for sink, leader in leaders.items()), (seed, loads)


def test_a_sink_that_ails_counts_for_nobody_and_is_not_handed_over() -> None:
    sinks = {sink: HostedRecord("joined", True, ailing=sink == "a") for sink in "abc"}
    first = WorkerRecord("w1", "host", 1, "1", False, sinks)
    assert to_hand_over("w1", (first, worker("w2", "d")), ()) is None
    assert to_hand_over("w1", (first, worker("w2", "")), ()) == "b"
    # The sink has just come from a worker that knows of its ailment.
    second = WorkerRecord(
        "w2", "host", 1, "1", False, {**worker("w2", "d").sinks, "a": HostedRecord("joined", False, ailing=True)}
    )
    assert to_hand_over("w1", (worker("w1", "abc"), second), ()) is None
