"""A worker that leads too many sinks hands some over, and a fair share stays where it is."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence

import pytest

from coordination.zookeeper.worker_records import HostedRecord, WorkerRecord
from sink.runtime.turns.spreading import summary_of, to_hand_over, weight


def worker(name: str, leads: str, joined: str = "abcdef", draining: bool = False) -> WorkerRecord:
    sinks = {sink: HostedRecord("joined", sink in leads) for sink in joined}
    return WorkerRecord(name, "host", 1, "1", draining, sinks)


def decide(
    worker_name: str, records: Iterable[WorkerRecord], handed_over: Collection[str], asked: list[str] | None = None
) -> str | None:
    """Decides by the summaries of `records`. Adds the workers whose record was needed to `asked`."""
    by_worker = {record.worker: record for record in records}
    plain = [summary_of(record) for record in by_worker.values()]
    summaries = {name: summary_of(record, plain) for name, record in by_worker.items()}
    needed: set[str] = set()

    def joined(name: str) -> Collection[str]:
        needed.add(name)
        return by_worker[name].joined

    decision = to_hand_over(by_worker[worker_name], summaries, handed_over, joined)
    if asked is not None:
        asked.extend(sorted(needed))
    return decision


def test_one_who_leads_two_more_than_another_hands_over_one_at_a_time() -> None:
    fleet = (worker("w1", "abcdef"), worker("w2", ""))
    assert decide("w1", fleet, ()) == "a"
    assert decide("w1", fleet, ("a",)) == "b"
    assert decide("w1", fleet, ("a", "b")) == "c"
    assert decide("w1", fleet, ("a", "b", "c")) is None


def test_a_fair_share_stays() -> None:
    assert decide("w1", (worker("w1", "abc"), worker("w2", "def")), ()) is None
    assert decide("w1", (worker("w1", "abcd", "abcdefg"), worker("w2", "efg", "abcdefg")), ()) is None
    assert decide("w2", (worker("w1", "abcdef"), worker("w2", "")), ()) is None
    assert decide("w1", (worker("w1", "abcdef"),), ()) is None


def weighing(name: str, leads: Mapping[str, int], joined: Iterable[str] = "abcdef") -> WorkerRecord:
    sinks = {sink: HostedRecord("joined", sink in leads, weight=leads.get(sink, 1)) for sink in joined}
    return WorkerRecord(name, "host", 1, "1", False, sinks)


def test_the_heaviest_sink_that_makes_the_shares_more_even_is_handed_over_first() -> None:
    weights = {"a": 1, "b": 12, "c": 12, "d": 60}
    handed: dict[str, int] = {}
    for sink in "bca":
        assert decide("w1", (weighing("w1", weights), weighing("w2", handed)), ()) == sink
        assert decide("w2", (weighing("w1", weights), weighing("w2", handed)), ()) is None
        handed[sink] = weights.pop(sink)
    assert decide("w1", (weighing("w1", weights), weighing("w2", handed)), ()) is None


def test_what_is_being_handed_over_counts_for_the_worker_that_will_have_it() -> None:
    fleet = (weighing("w1", {"a": 1, "b": 12, "c": 12, "d": 60}), weighing("w2", {}))
    assert decide("w1", fleet, ("b",)) == "c"
    assert decide("w1", fleet, ("b", "c")) == "a"
    assert decide("w1", fleet, ("a", "b", "c")) is None


@pytest.mark.parametrize(("interval", "expected"), [(60, 60), (1, 3600), (0.05, 3600), (7200, 1)])
def test_a_sink_weighs_as_many_transactions_as_its_interval_allows_in_an_hour(interval: float, expected: int) -> None:
    assert weight(interval) == expected


def test_a_sink_of_a_short_interval_weighs_as_much_as_many_of_long_ones() -> None:
    idle = weighing("w2", dict.fromkeys("bcdef", 1))
    assert decide("w1", (weighing("w1", {"a": 60}), idle), ()) is None
    assert decide("w2", (weighing("w1", {"a": 60}), idle), ()) is None
    assert decide("w1", (weighing("w1", {"a": 60, "b": 60}), weighing("w2", {})), ()) == "a"


def test_a_worker_that_drains_or_has_not_joined_the_sink_is_given_nothing() -> None:
    assert decide("w1", (worker("w1", "abcdef"), worker("w2", "", draining=True)), ()) is None
    assert decide("w1", (worker("w1", "abcdef"), worker("w2", "", joined="")), ()) is None
    assert decide("w1", (worker("w1", "abcdef"), worker("w2", "", joined="d")), ()) == "d"
    assert decide("w1", (worker("w1", "abcdef", draining=True), worker("w2", "")), ()) is None


def settled(weights: Mapping[str, int], names: Sequence[str], rng: random.Random) -> dict[str, str]:
    """Returns the leaders of sinks once no worker hands any over, from leaders at random."""
    leaders = {sink: rng.choice(names) for sink in weights}
    for _ in range(2000):
        records = [
            weighing(name, {sink: weights[sink] for sink, leader in leaders.items() if leader == name}, weights)
            for name in names
        ]
        moves = [(name, sink) for name in names if (sink := decide(name, records, ())) is not None]
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


def test_an_impaired_sink_is_not_counted_and_not_handed_over() -> None:
    sinks = {sink: HostedRecord("joined", True, impaired=sink == "a") for sink in "abc"}
    first = WorkerRecord("w1", "host", 1, "1", False, sinks)
    assert decide("w1", (first, worker("w2", "d")), ()) is None
    assert decide("w1", (first, worker("w2", "")), ()) == "b"
    # The sink has just come from a worker that knows that it is impaired.
    second = WorkerRecord(
        "w2", "host", 1, "1", False, {**worker("w2", "d").sinks, "a": HostedRecord("joined", False, impaired=True)}
    )
    assert decide("w1", (worker("w1", "abc"), second), ()) is None


def by_all_records(worker: str, records: Sequence[WorkerRecord], handed_over: Collection[str]) -> str | None:
    """Decides from every record, as the rule says: the heaviest sink that some worker that has joined it could take."""
    impaired = {name for record in records for name, sink in record.sinks.items() if sink.impaired}
    loads = {r.worker: sum(r.sinks[name].weight for name in r.leads if name not in impaired) for r in records}
    own = next(record for record in records if record.worker == worker)
    share = {name: own.sinks[name].weight for name in own.leads if name not in impaired}
    leaving = sum(sink_weight for name, sink_weight in share.items() if name in handed_over)
    for name, sink_weight in sorted(share.items(), key=lambda item: -item[1]):
        takers = [loads[r.worker] for r in records if r is not own and not r.draining and name in r.joined]
        fits = bool(takers) and loads[worker] - leaving - (min(takers) + leaving) >= 2 * sink_weight
        if name not in handed_over and fits and not own.draining:
            return name
    return None


def test_a_decision_reads_few_records_and_is_that_of_all_records() -> None:
    asked: list[str] = []
    answered = 0
    for seed in range(500):
        rng = random.Random(seed)
        names = [f"s{number}" for number in range(rng.randint(1, 12))]
        weights = {name: rng.choice((1, 2, 12, 60)) for name in names}
        records = []
        for worker_name in ("w0", "w1", "w2", "w3"):
            sinks = {
                name: HostedRecord(
                    rng.choice(("joined", "joined", "waiting")),
                    rng.random() < 0.4,
                    impaired=rng.random() < 0.1,
                    weight=weights[name],
                )
                for name in names
                if rng.random() < 0.8
            }
            records.append(WorkerRecord(worker_name, "host", 1, "1", rng.random() < 0.1, sinks))
        handed_over = [name for name in names if rng.random() < 0.2]
        decision = decide("w0", records, handed_over, asked)
        assert decision == by_all_records("w0", records, handed_over), seed
        answered += decision is not None
    assert answered > 50
    assert len(asked) < 500


def test_the_worker_that_carries_least_is_asked_about_first_and_no_other_if_it_has_joined() -> None:
    asked: list[str] = []
    names = "abcdefgh"
    fleet = [worker("w1", "abcdef", names), worker("w2", "g", names), worker("w3", "", names), worker("w4", "h", names)]
    assert decide("w1", fleet, (), asked) == "a"
    assert asked == ["w3"]
