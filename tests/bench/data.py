"""`python -m tests.bench.data`: the sink and plain Spark side by side on Avro, upserts and many table partitions.

Round by round, pair by pair, the sink and its peer take turns, measured as in `tests.bench`. When every pair was
run, results go to `docs/benchmarks-data.md` and `.json`; `--report FILE...` writes them again from kept results. Exit
status: 0, or 1 when a run failed.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from sink.devtools.local.kafka import KafkaServer
from sink.devtools.local.zookeeper import ZooKeeperServer
from tests.bench import sink_run, spark_runs
from tests.bench.data_pairs import PAIRS, Pair
from tests.bench.data_report import render
from tests.bench.lab import Lab
from tests.bench.orders import PARTITIONS, fill
from tests.bench.results import Results, Run, Shape, merge_results
from tests.bench.running import CORES, DOCS, begin, print_progress, results_path, with_run
from tests.bench.sink_run import Variant
from tests.bench.workloads import AVRO, SCHEMA_ID
from tests.registry_kit import RegistryServer

PAGE = DOCS / "benchmarks-data.md"


def main() -> int:
    options = _options()
    if options.report:
        _write_docs(merge_results([Results.load(path) for path in options.report]))
        return 0
    patterns = options.pairs.split(",")
    pairs = [pair for pair in PAIRS if any(fnmatch.fnmatchcase(pair.name, pattern) for pattern in patterns)]
    if not pairs:
        print(f"bench: --pairs: none of these; there are {', '.join(pair.name for pair in PAIRS)}", file=sys.stderr)
        return 1
    results = begin(" ".join(["python -m tests.bench.data", *sys.argv[1:]]), heap=options.heap)
    path = results_path(results, "data-")
    directory = Path(tempfile.mkdtemp(prefix="sink-bench-"))
    try:
        for run in _runs(directory, pairs, options):
            results = with_run(results, *run)
            results.save(path)
    finally:
        shutil.rmtree(directory)
    print(render(results))
    if len(pairs) == len(PAIRS):
        _write_docs(results)
    return 1 if results.failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.data", description="Compare the sink with Spark.")
    parser.add_argument("--pairs", default="*", help="names, or patterns like `mor-*` (default: all)")
    parser.add_argument("--rounds", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--heap", default="2g", help="heap of every JVM that is compared")
    parser.add_argument("--report", type=Path, nargs="+", help="only write the docs, from these files, joined")
    return parser.parse_args()


def _runs(
    directory: Path, pairs: Sequence[Pair], options: argparse.Namespace
) -> Iterator[tuple[str, int, Callable[[], Run]]]:
    """Yields name, round and start of each run, in turn."""
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeperServer(directory / "zookeeper"))
        kafka = stack.enter_context(KafkaServer(directory / "kafka", heap="1g"))
        registry = stack.enter_context(RegistryServer(directory / "registry"))
        client = SchemaRegistryClient({"url": registry.url})
        schema_id = client.register_schema("orders", Schema(json.dumps(AVRO), "AVRO"))
        assert schema_id == SCHEMA_ID
        for number in range(1, options.rounds + 1):
            for pair in pairs:
                shape = Shape(PARTITIONS, pair.load.lead)
                heap = options.heap
                lab = Lab(directory, zookeeper, kafka, pair.workload.name, shape, pair.load, CORES, heap, heap)
                filled = fill(kafka.address, lab.topic, pair.load.total, pair.workload.record)
                if filled.records:
                    size = f"{filled.records} records ({filled.bytes} bytes)"
                    print_progress(f"{lab.topic}: {size}, in {filled.seconds:.0f} s")
                settings = {"schema.ddl": pair.workload.ddl, **pair.settings}
                if pair.workload.registered:
                    settings["schema.registry.url"] = registry.url
                variant = Variant(1, CORES, settings=settings)
                yield pair.sink, number, partial(sink_run.run, lab, pair.sink, number, variant)
                yield pair.spark, number, partial(spark_runs.run, lab, pair.spark, number, pair.peer, pair.keys)


def _write_docs(results: Results) -> None:
    results.save(PAGE.with_suffix(".json"))
    PAGE.write_text(render(results))
    print_progress(f"written: {PAGE} and .json")


if __name__ == "__main__":
    sys.exit(main())
