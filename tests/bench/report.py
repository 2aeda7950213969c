"""`docs/benchmarks.md`, made from results: no figure in its tables was typed by a person."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from tests.bench.figures import (
    INTERVAL_SECONDS,
    PHASES,
    Spread,
    broker_per_million,
    by_peer,
    cpu_per_million,
    gains,
    median_of,
    outside_write,
    peak,
    phase_seconds,
    rate,
    role_per_million,
    targets,
)
from tests.bench.peers import ALL
from tests.bench.results import Results
from tests.bench.sampler import Role

METHOD = """\
- **One topic** of JSON order events of about 130 bytes in 4 partitions, filled once, every partition
  equally. Peers run in turn, round by round, never two at a time.
- **Pinned alike.** Every process, the broker and ZooKeeper included, is bound to the CPUs named above.
  Each peer's JVM has the same heap. The broker's CPU seconds in a peer's window are stated, for they come
  out of the same CPUs.
- **The clock** never counts the start of a process. Spark peers: session up, and the same query run over
  the last million records into another table; then from the start of the query to its end. The sink: from
  the opening of its second transaction to the `COMMITTED` of its last, by the times in ZooKeeper; its
  first transaction is the warm-up (with two in flight it is counted, cold). Kafka Connect: from its first
  commit past the records that the sink warms up with to its last full one, by snapshot metadata. *End to
  end* is stated beside it for the sink (first transaction opened, to the last COMMITTED) and for Kafka
  Connect (partitions assigned, to the last commit): all records of the topic, from a
  JVM that has done one small job at most.
- **CPU** is that of the whole process tree, sampled four times a second. **Memory** is the highest
  resident size seen in the window: of the JVMs together, of the largest of the workers' own Pythons, and of
  Spark's Python workers together, so that pages which they share count more than once.
- **Same columns** for (a) to (e): the value's six, and topic, partition, offset and timestamp. Kafka
  Connect's Iceberg sink writes the value's six only; its closest relative is `d-nometa`.
- **Guarantees differ.** (a) has none. (b), (c) are exactly once for a single driver with its checkpoint.
  (d), (e) and (f) are exactly once over a fleet.
- Every run's record count is checked; a sink run with an aborted transaction is refused."""


def render(results: Results, name: str) -> str:
    """`name`: that of plot and data beside it, without suffix."""
    parts = [
        _head(results, name),
        textwrap.fill(results.note, 110) + "\n" if results.note else "",
        f"## How it is measured\n\n{METHOD}\n",
        _throughput(results),
        _targets(results),
    ]
    parts += [_phases(results), _in_flight(results), _end_to_end(results), _freshness(results), _left_out(results)]
    return "\n".join(part for part in parts if part)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [
        f"| {' | '.join(heads)} |",
        f"|{'|'.join('---' if not n else '---:' for n in range(len(heads)))}|",
    ]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows), ""])


def machine_lines(results: Results) -> str:
    """What ran where, as a list."""
    machine, conditions = results.machine, results.conditions
    versions = ", ".join(f"{package} {number}" for package, number in machine.versions.items())
    return f"""\
- Command: `{results.command}`
- Machine: {machine.processor}, {machine.cpus} CPUs, {machine.memory / 2**30:.0f} GB, {machine.system}
- Bound to CPUs {", ".join(map(str, machine.pinned))}
- {machine.java}, Python {machine.python}, {versions}
- Heap of every JVM that is compared: {conditions["heap"]}
- Load averages just before: {conditions["load before"]}"""


def _head(results: Results, name: str) -> str:
    records, lead = int(results.conditions["records"]), int(results.conditions["lead"])
    return f"""\
# Benchmarks

Written by `python -m tests.bench` (`make bench`): do not edit. Begun {results.began}.
Every run, as data: [{name}.json]({name}.json).

{machine_lines(results)}
- {records:,} counted records a run after {lead:,} that warm up; the sink moves {lead:,} in a transaction

![Rates by peer, and where a transaction's time goes]({name}.png)
"""


def _throughput(results: Results) -> str:
    runs = by_peer(results)
    rows = []
    for peer in ALL:
        if found := runs.get(peer.name):
            sizes = (peak(found, role) for role in Role)
            parts = (role_per_million(found, role) for role in Role)
            rows.append(
                [
                    f"`{peer.name}` {peer.what}",
                    spread_text(rate(found), ",.0f"),
                    spread_text(cpu_per_million(found), ".2f"),
                    *(f"{part:.2f}" if part else "" for part in parts),
                    f"{broker_per_million(found).median:.2f}",
                    *(f"{size / 2**20:,.0f}" if size else "" for size in sizes),
                ]
            )
    names = [role.value for role in Role]
    heads = ["peer", "records/s", "CPU s per million", *(f"of it {name}" for name in names), "the broker's"]
    heads += [f"{name}, MB" for name in names]
    said = f"{rounds_said(results)}; memory is the highest of all."
    return f"## Throughput\n\n{said}\n\n{table(heads, rows)}"


def _targets(results: Results) -> str:
    rows = []
    for target in targets(results):
        bound = f"{'at least' if target.at_least else 'at most'} {target.wanted:g} {target.unit}"
        if target.measured is None:
            rows.append([target.what, bound, "not run", ""])
        else:
            rows.append(
                [
                    target.what,
                    bound,
                    f"{target.measured:.2f} {target.unit}",
                    "yes" if target.reached else "**no**",
                ]
            )
    return f"## Against what was to be reached\n\n{table(['figure', 'wanted', 'measured', 'reached'], rows)}"


def _phases(results: Results) -> str:
    rows = []
    for peer, runs in by_peer(results).items():
        if found := [phases for run in runs for phases in run.phases]:
            seconds = phase_seconds(found)
            outside = outside_write(seconds)
            cells = [f"{seconds[name]:.2f}" for name in PHASES]
            rows.append([f"`{peer}`", *cells, f"{outside:.2f}", f"{100 * outside / INTERVAL_SECONDS:.1f} %"])
    if not rows:
        return ""
    lead = int(results.conditions["lead"])
    heads = ["peer", *PHASES, "outside write", "of 60 s"]
    return (
        f"## Time by phase\n\nSeconds of a transaction of {lead:,} records, medians over all counted ones.\n"
        "`plan`: since the transaction before ended (look at the log, plan). `begin`: plan written, Hudi\n"
        "instant begun. `write`: STARTED to PREPARED. `commit`: to COMMITTED. `settle`: to AFTER.\n\n"
        + table(heads, rows)
    )


def _in_flight(results: Results) -> str:
    found = list(gains(results))
    if not found:
        return ""
    rows = [
        [
            f"{each.seconds:.1f}",
            spread_text(each.one, ",.0f"),
            spread_text(each.two, ",.0f"),
            f"{100 * each.ratio - 100:+.0f} %",
        ]
        for each in found
    ]
    most = 100 * found[-1].outside / (INTERVAL_SECONDS - found[-1].outside)
    heads = ["seconds of a transaction", "one in flight, records/s", "two in flight, records/s", "gain"]
    return (
        "## Two transactions in flight\n\n`transactions.in.flight=2`: the next one is written while the one before it"
        " commits. The gain\ncannot be more than the time outside the write phase: of transactions that take"
        f" {INTERVAL_SECONDS:g} s, {most:.1f} %.\n\n{table(heads, rows)}"
    )


def _end_to_end(results: Results) -> str:
    rows = []
    for peer, runs in by_peer(results).items():
        if all("end_to_end_seconds" in run.details for run in runs):
            seconds = median_of(runs, lambda run: run.details["end_to_end_seconds"])
            records = runs[0].details["end_to_end_records"]
            rows.append([f"`{peer}`", f"{records:,.0f}", f"{seconds:.1f}", f"{records / seconds:,.0f}"])
    return f"## End to end, cold\n\n{table(['peer', 'records', 'seconds', 'records/s'], rows)}" if rows else ""


def _freshness(results: Results) -> str:
    if not results.freshness:
        return ""
    rows = []
    for each in results.freshness:
        seconds = phase_seconds(each.phases)
        cells = [f"{each.p50:.2f}", f"{each.p99:.2f}", f"{each.most:.2f}", str(each.transactions)]
        rows.append([f"{each.commits:,}", f"{each.records:,}", *cells, *(f"{seconds[name]:.2f}" for name in PHASES)])
    heads = ["commits before", "records", "p50, s", "p99, s", "most, s", "transactions", *PHASES]
    return (
        f"## Freshness at a trickle\n\n{results.freshness[0].rate:,.0f} records/s for a minute,"
        " `transaction.interval.ms=1000`, one worker. From the moment a record\nis handed to the producer to"
        " the completion of the commit whose checkpoint covers it, by the\ntable's timeline."
        " Phases are medians in seconds.\n\n" + table(heads, rows)
    )


def _left_out(results: Results) -> str:
    missing = [peer.name for peer in ALL if peer.name not in by_peer(results)]
    lines = [f"- Peers: {', '.join(missing)}."] if missing else []
    if len(results.freshness) < 2:
        lines.append("- Freshness on an aged table." if results.freshness else "- Freshness.")
    lines += [f"- Failed: {each}" for each in results.failed]
    return "## Not run\n\n" + "\n".join(lines) + "\n" if lines else ""


def rounds_said(results: Results) -> str:
    rounds = max((run.round for run in results.runs), default=0)
    return "One round" if rounds == 1 else f"Median of {rounds} rounds (least to most)"


def spread_text(spread: Spread, form: str) -> str:
    if spread.least == spread.most:
        return f"**{spread.median:{form}}**"
    return f"**{spread.median:{form}}** ({spread.least:{form}} to {spread.most:{form}})"
