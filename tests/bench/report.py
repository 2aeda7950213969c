"""`docs/benchmarks.md`, made from results: no figure in its tables was typed by a person."""

from __future__ import annotations

import textwrap

from tests.bench.figures import (
    INTERVAL_SECONDS,
    by_case,
    by_peer,
    gains,
    shapes,
)
from tests.bench.peers import ALL
from tests.bench.report_shapes import (
    COST_HEADS,
    RATE_HEADS,
    SHAPE_HEADS,
    backlogs,
    by_partitions,
    cost_cells,
    rate_cells,
    shape_cells,
)
from tests.bench.results import Results
from tests.bench.tables import spread_text, table
from tests.bench.targets import targets

AGED = 1000
"""Commits."""
METHOD = """\
- **Topics** of JSON order events of about 130 bytes, one for each number of partitions, filled once and evenly. A
  figure holds for the topic beside it. Peers take turns, round by round, never two at a time.
- **CPUs.** Every process, broker and ZooKeeper included, is bound to the CPUs named above. CPU is that of the peer's
  whole process tree; memory is the highest resident size in the window.
- **The clock** starts after the warm-up, never with a process. Spark: the query, after the same query over a million
  other records. The sink: from the opening of its second transaction to the `COMMITTED` of its last, by ZooKeeper's
  times; all transactions are as large as the warm-up. Kafka Connect: from its first commit past the warm-up to its
  last full one. *Cold* counts all records, from the first transaction or assignment to the last commit.
- **Columns.** (a) to (e) write the value's six and topic, partition, offset, timestamp; (f) writes the six only.
- **Guarantees.** (a) has none; (b) and (c) are exactly once for one driver; (d), (e) and (f) over a fleet.
- Each run's record count is checked; a run of the sink with an aborted transaction is refused."""

MAIN = "benchmarks"
ELSEWHERE = f"As for [the other page]({MAIN}.md#how-it-is-measured)."


def render(results: Results, name: str) -> str:
    """Returns the page. `name`: of the plot and data files beside it, without suffix."""
    parts = [
        _head(results, name),
        textwrap.fill(results.note, 110, break_on_hyphens=False) + "\n" if results.note else "",
        f"## How it is measured\n\n{METHOD if name == MAIN else ELSEWHERE}\n",
        by_partitions(results),
        _throughput(results),
        _targets(results) if name == MAIN else "",
    ]
    parts += [_in_flight(results), _freshness(results), backlogs(results)]
    return "\n".join(part for part in [*parts, _left_out(results)] if part)


def machine_lines(results: Results) -> str:
    """Returns command, machine and versions, as a Markdown list."""
    machine, conditions = results.machine, results.conditions
    versions = ", ".join(f"{package} {number}" for package, number in machine.versions.items())
    return f"""\
- Command: `{results.command}`
- Machine: {machine.processor}, {machine.cpus} CPUs, {machine.memory / 2**30:.0f} GB, {machine.system}
- Bound to CPUs {", ".join(map(str, machine.pinned))}
- {machine.java}, Python {machine.python}, {versions}
- {_heaps(results)}
- Load averages just before: {conditions["load before"]}"""


def _heaps(results: Results) -> str:
    heap, ours = results.conditions["heap"], results.conditions.get("sink heap", "")
    if not ours or ours == heap:
        return f"Heap of every JVM that is compared: {heap}"
    return f"Heaps: {ours} for the sink's JVM, {heap} for the others"


def _head(results: Results, name: str) -> str:
    conditions = results.conditions
    lines, measured_shapes = [machine_lines(results)], shapes(results)
    if partitions := sorted({shape.partitions for shape in measured_shapes}):
        lines.append(f"- Kafka partitions: {', '.join(f'{count:,}' for count in partitions)}")
    if "batch" in conditions:
        lines.append(f"- Topics: batches of {int(conditions['batch']):,} records, lz4, in topics of every width alike")
    lead = int(conditions["lead"])
    more_text = " (more after fewer)" * (len({shape.warm_up for shape in measured_shapes}) > 1)
    lines.append(f"- {int(conditions['records']):,} counted records a run after {lead:,} that warm up{more_text}")
    bullet_list = "\n".join(lines)
    return f"""\
# Benchmarks

Written by `python -m tests.bench` (`make bench`): do not edit. Begun {results.began}.
Every run, with the time of its phases, as data: [{name}.json]({name}.json).

{bullet_list}

![Rates by topic and peer, and where a transaction's time goes]({name}.png)
"""


def _throughput(results: Results) -> str:
    shown_before = ("d", "f") if by_partitions(results) else ()
    rows = [
        [f"`{peer.name}` {peer.description}", *shape_cells(case.shape), *rate_cells(runs), *cost_cells(runs)]
        for peer in ALL
        for case, runs in by_case(results).items()
        if case.peer == peer.name and peer.name not in shown_before
    ]
    if not rows:
        return ""
    heads = ["peer", *SHAPE_HEADS, *RATE_HEADS, *COST_HEADS]
    return f"## Throughput\n\n{rounds_text(results)}; memory is the highest of all.\n\n{table(heads, rows)}"


def _targets(results: Results) -> str:
    """Lists the figures that were missed, and counts the others: the data file has what they are computed from."""
    measured = [target for target in targets(results) if target.measured is not None]
    missed = [target for target in measured if not target.reached]
    rows = []
    for target in missed:
        bound = f"{'at least' if target.at_least else 'at most'} {target.wanted:g} {target.unit}".strip()
        rows.append([target.description, bound, f"{target.measured:.2f} {target.unit}".strip()])
    not_run = sum(target.measured is None for target in targets(results))
    reached = f"{len(measured) - len(missed)} of {len(measured)} figures are as wanted; {not_run} were not run."
    heading = f"## Against what is to be reached\n\n{reached}"
    return f"{heading} Missed:\n\n{table(['figure', 'wanted', 'measured'], rows)}" if rows else f"{heading}\n"


def _in_flight(results: Results) -> str:
    flight_gains = list(gains(results))
    if not flight_gains:
        return ""
    rows = [
        [
            f"{gain.shape.partitions:,}",
            f"{gain.seconds:.1f}",
            spread_text(gain.one_in_flight, ",.0f"),
            spread_text(gain.two_in_flight, ",.0f"),
            f"{100 * gain.ratio - 100:+.0f} %",
        ]
        for gain in flight_gains
    ]
    most = 100 * flight_gains[-1].outside / (INTERVAL_SECONDS - flight_gains[-1].outside)
    heads = ["Kafka partitions", "seconds of a transaction", "one in flight, records/s", "two in flight, records/s"]
    heads.append("gain")
    return (
        "## Two transactions in flight\n\n`transactions.in.flight=2`: the next one is written while the one"
        " before it commits. The gain\ncannot be more than the time outside the write phase: of transactions that take"
        f" {INTERVAL_SECONDS:g} s, {most:.1f} %.\n\n{table(heads, rows)}"
    )


def _freshness(results: Results) -> str:
    if not results.freshness:
        return ""
    rows = [
        [f"{freshness.partitions:,}", f"{freshness.commits:,}"]
        + [f"{seconds:.2f}" for seconds in (freshness.p50, freshness.p99, freshness.most)]
        for freshness in results.freshness
    ]
    heads = ["Kafka partitions", "commits before", "p50, s", "p99, s", "most, s"]
    return (
        f"## Freshness at a trickle\n\n{results.freshness[0].rate:,.0f} records/s for a minute,"
        " `transaction.interval.ms=1000`, one worker: from the moment a record is handed\nto the producer to"
        " the completion of the commit whose checkpoint covers it.\n\n" + table(heads, rows)
    )


def _left_out(results: Results) -> str:
    missing = [peer.name for peer in ALL if peer.name not in by_peer(results)]
    lines = [f"- Peers: {', '.join(missing)}."] if missing else []
    if all(freshness.commits < AGED for freshness in results.freshness):
        lines.append("- Freshness on an aged table." if results.freshness else "- Freshness.")
    if not results.backlogs:
        lines.append("- A backlog on a small heap.")
    lines += [f"- Failed: {failure}" for failure in results.failed]
    return "## Not run\n\n" + "\n".join(lines) + "\n" if lines else ""


def rounds_text(results: Results) -> str:
    rounds = max((run.round for run in results.runs), default=0)
    return "One round" if rounds == 1 else f"Median of {rounds} rounds (least to most)"
