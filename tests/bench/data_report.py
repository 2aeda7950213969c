"""`docs/benchmarks-data.md`, made from results: no figure in its tables was typed by a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.bench.data_pairs import PAIRS, Pair
from tests.bench.figures import by_peer, cpu_per_million, peak, rate
from tests.bench.report import machine_lines, rounds_text
from tests.bench.results import Results, Run
from tests.bench.sampler import Role
from tests.bench.tables import spread_text, table

METHOD = """\
- The sink with one worker, and a stream of Structured Streaming into Hudi with the sink's settings for the table,
  unless the pair says otherwise. Same cores and heap, in turns; the broker's work comes out of the same cores.
- **All topics have 4 partitions.** The clock counts neither the start of a process nor Spark's warm-up of a million
  records: the sink's from the opening of the first counted transaction to the `COMMITTED` of the last, Spark's from the
  start of the query, or of its first counted trigger, to the end of its last.
- **Upserts**: 5,000,000 keys first, not counted, in transactions of 1,000,000 records; then two such transactions of
  changes to keys drawn evenly, so that each touches every file.
- **5,000 partitions**: one transaction of 1,000,000 records makes 20,000 files. Both go without Hudi's column
  statistics, as [recommended](how-to/partitioning.md): with them the sink's first commit took 3 minutes and its second
  7. Spark sorts by partition (`PARTITION_SORT`): with Hudi's default it ran out of a heap of 2 GB.
- CPU is that of the whole process tree; memory is the highest resident size of the JVMs."""


def render(results: Results) -> str:
    runs = by_peer(results)
    rows = [row for pair in PAIRS for row in _rows(pair, runs.get(pair.sink, []), runs.get(pair.spark, []))]
    heads = ["pair", "", "records/s", "CPU s per million", "JVM, MB"]
    failed = "".join(f"- Failed: {failure}\n" for failure in results.failed) + "\n" * bool(results.failed)
    return f"""\
# Benchmarks: Avro, upserts, many table partitions

Written by `python -m tests.bench.data`: do not edit. Begun {results.began}.
Every run, as data: [benchmarks-data.json](benchmarks-data.json).

{machine_lines(results)}

## How it is measured

{METHOD}

## Rates

{rounds_text(results)}.

{table(heads, rows)}
{failed}## Against what was to be reached

{table(["pair", "wanted", "measured", "reached"], [_target(pair, runs) for pair in PAIRS])}"""


def _rows(pair: Pair, sink: Sequence[Run], spark: Sequence[Run]) -> list[list[str]]:
    return [
        [
            f"`{pair.name}` {pair.description}" if system == "sink" else "",
            system,
            spread_text(rate(runs), ",.0f"),
            spread_text(cpu_per_million(runs), ".2f"),
            f"{peak(runs, Role.JVM) / 2**20:,.0f}",
        ]
        for system, runs in (("sink", sink), ("Spark", spark))
        if runs
    ]


def _target(pair: Pair, runs: Mapping[str, list[Run]]) -> list[str]:
    wanted = f"at least {pair.wanted:g} times"
    if not (runs.get(pair.sink) and runs.get(pair.spark)):
        return [f"`{pair.name}`", wanted, "not run", ""]
    ratio = rate(runs[pair.sink]).median / rate(runs[pair.spark]).median
    return [f"`{pair.name}`", wanted, f"{ratio:.2f} times", "yes" if ratio >= pair.wanted else "**no**"]
