"""`docs/benchmarks.md`, made from results: no figure in its tables was typed by a person."""

from __future__ import annotations

import textwrap

from tests.bench.figures import (
    INTERVAL_SECONDS,
    PHASES,
    broker_per_million,
    by_case,
    by_peer,
    cpu_per_million,
    gains,
    median_of,
    outside_write,
    peak,
    phase_seconds,
    rate,
    role_per_million,
    shapes,
)
from tests.bench.peers import ALL
from tests.bench.report_shapes import SHAPE_HEADS, backlogs, by_partitions, shape_cells, spread
from tests.bench.results import Results
from tests.bench.sampler import Role
from tests.bench.tables import spread_text, table
from tests.bench.targets import targets

AGED = 1000
"""Commits."""
METHOD = """\
- **One topic** of JSON order events of about 130 bytes for each number of partitions, which stands beside
  every figure: a figure holds for that topic. It is filled once, every partition equally. Peers run in turn,
  round by round, never two at a time.
- **Pinned alike.** Every process, the broker and ZooKeeper included, is bound to the CPUs named above.
  The heaps of the JVMs are named above. The broker's CPU seconds in a peer's window are stated, for they
  come out of the same CPUs.
- **Warm-up** is a number of records that come before the counted ones: rounded down, as all transactions
  are, to as many for every partition.
- **The clock** never counts the start of a process. Spark peers: session up, and the same query run over
  the last million records into another table; then from the start of the query to its end. The sink: from
  the opening of its second transaction to the `COMMITTED` of its last, by the times in ZooKeeper; its
  first transaction is the warm-up, the last is not counted where the next one is written while one commits, and
  all have the same size.
  Kafka Connect: from its first commit past the records that the sink warms up with to its last full one, by
  snapshot metadata. *End to end* is stated beside it for the sink (first transaction opened, to the last
  COMMITTED) and for Kafka Connect (partitions assigned, to the last commit): all records of the topic, from
  a JVM that has done one small job at most.
- **CPU** is that of the whole process tree, sampled four times a second. **Memory** is the highest
  resident size seen in the window: of the JVMs together, of the largest of the workers' own Pythons, and of
  Spark's Python workers together, so that pages which they share count more than once.
- **Same columns** for (a) to (e): the value's six, and topic, partition, offset and timestamp. Kafka
  Connect's Iceberg sink writes the value's six only; its closest relative is `d-nometa`.
- **Guarantees differ.** (a) has none. (b), (c) are exactly once for a single driver with its checkpoint.
  (d), (e) and (f) are exactly once over a fleet.
- Every run's record count is checked; a sink run with an aborted transaction is refused."""


def render(results: Results, name: str) -> str:
    """Returns the page. `name`: of the plot and data files beside it, without suffix."""
    parts = [
        _head(results, name),
        textwrap.fill(results.note, 110) + "\n" if results.note else "",
        f"## How it is measured\n\n{METHOD}\n",
        by_partitions(results),
        _throughput(results),
        spread(results),
        _targets(results),
    ]
    parts += [_phases(results), _in_flight(results), _end_to_end(results), _freshness(results), backlogs(results)]
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
    lines.append("- The sink moves in a transaction as many records as warm it up, unless a peer's line says otherwise")
    bullet_list = "\n".join(lines)
    return f"""\
# Benchmarks

Written by `python -m tests.bench` (`make bench`): do not edit. Begun {results.began}.
Every run, as data: [{name}.json]({name}.json).

{bullet_list}

![Rates by topic and peer, and where a transaction's time goes]({name}.png)
"""


def _throughput(results: Results) -> str:
    runs_by_case = by_case(results)
    rows = []
    for peer in ALL:
        for case, runs in runs_by_case.items():
            if case.peer == peer.name:
                sizes = (peak(runs, role) for role in Role)
                parts = (role_per_million(runs, role) for role in Role)
                rows.append(
                    [
                        f"`{peer.name}` {peer.description}",
                        *shape_cells(case.shape),
                        spread_text(rate(runs), ",.0f"),
                        spread_text(cpu_per_million(runs), ".2f"),
                        *(f"{part:.2f}" if part else "" for part in parts),
                        f"{broker_per_million(runs).median:.2f}",
                        *(f"{size / 2**20:,.0f}" if size else "" for size in sizes),
                    ]
                )
    if not rows:
        return ""
    names = [role.value for role in Role]
    heads = ["peer", *SHAPE_HEADS, "records/s", "CPU s per million", *(f"of it {name}" for name in names)]
    heads += ["the broker's", *(f"{name}, MB" for name in names)]
    caption = f"{rounds_text(results)}; memory is the highest of all."
    return f"## Throughput\n\n{caption}\n\n{table(heads, rows)}"


def _targets(results: Results) -> str:
    rows = []
    for target in targets(results):
        bound = f"{'at least' if target.at_least else 'at most'} {target.wanted:g} {target.unit}".strip()
        if target.measured is None:
            rows.append([target.description, bound, "not run", ""])
        else:
            rows.append(
                [
                    target.description,
                    bound,
                    f"{target.measured:.2f} {target.unit}".strip(),
                    "yes" if target.reached else "**no**",
                ]
            )
    return f"## Against what is to be reached\n\n{table(['figure', 'wanted', 'measured', 'reached'], rows)}"


def _phases(results: Results) -> str:
    rows = []
    for case, runs in by_case(results).items():
        if transactions := [phases for run in runs for phases in run.phases]:
            seconds = phase_seconds(transactions)
            outside = outside_write(seconds)
            cells = [f"{seconds[name]:.2f}" for name in PHASES]
            share = f"{100 * outside / INTERVAL_SECONDS:.1f} %"
            rows.append([f"`{case.peer}`", *shape_cells(case.shape), *cells, f"{outside:.2f}", share])
    if not rows:
        return ""
    heads = ["peer", *SHAPE_HEADS, *PHASES, "outside write", "of 60 s"]
    return (
        "## Time by phase\n\nSeconds of a transaction, which has as many records as warm up; medians over all counted"
        " ones.\n`plan`: since the transaction before ended (look at the log, plan). `begin`: plan written, Hudi\n"
        "instant begun. `write`: STARTED to PREPARED. `commit`: to COMMITTED. `settle`: to AFTER.\n\n"
        + table(heads, rows)
    )


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


def _end_to_end(results: Results) -> str:
    rows = []
    for case, runs in by_case(results).items():
        if all("end_to_end_seconds" in run.details for run in runs):
            seconds = median_of(runs, lambda run: run.details["end_to_end_seconds"])
            records = runs[0].details["end_to_end_records"]
            cells = [f"{records:,.0f}", f"{seconds:.1f}", f"{records / seconds:,.0f}"]
            rows.append([f"`{case.peer}`", *shape_cells(case.shape), *cells])
    heads = ["peer", *SHAPE_HEADS, "records", "seconds", "records/s"]
    return f"## End to end, cold\n\n{table(heads, rows)}" if rows else ""


def _freshness(results: Results) -> str:
    if not results.freshness:
        return ""
    rows = []
    for freshness in results.freshness:
        seconds = phase_seconds(freshness.phases)
        cells = [f"{freshness.p50:.2f}", f"{freshness.p99:.2f}", f"{freshness.most:.2f}", str(freshness.transactions)]
        before = [f"{freshness.partitions:,}", f"{freshness.commits:,}", f"{freshness.records:,}"]
        rows.append([*before, *cells, *(f"{seconds[name]:.2f}" for name in PHASES)])
    heads = ["Kafka partitions", "commits before", "records", "p50, s", "p99, s", "most, s", "transactions", *PHASES]
    return (
        f"## Freshness at a trickle\n\n{results.freshness[0].rate:,.0f} records/s for a minute,"
        " `transaction.interval.ms=1000`, one worker. From the moment a record\nis handed to the producer to"
        " the completion of the commit whose checkpoint covers it, by the\ntable's timeline."
        " Phases are medians in seconds.\n\n" + table(heads, rows)
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
