"""`python -m tests.bench`: runs the peers in turn, round by round, and writes results, `docs/benchmarks.md` and
its plot.

With no options it is the full comparison. A partial run (`--records`, `--rounds`, `--peers`) prints its
tables and keeps its JSON, and leaves the docs alone unless `--docs` is given. `--report FILE` writes the
docs again from kept results, of several commands too; `--into NAME` writes them beside those of another machine.
Exit status: 0, or 1 when a peer failed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

from coordination.errors import ConfigError, SinkError
from sink.local.kafka import KafkaServer
from sink.local.zookeeper import ZooKeeperServer
from tests.bench import freshness
from tests.bench.lab import Lab, Load
from tests.bench.orders import PARTITIONS, fill
from tests.bench.peers import ALL, chosen
from tests.bench.plot import draw
from tests.bench.report import render
from tests.bench.results import Results, joined
from tests.bench.running import CORES, DOCS, begin, kept, say, with_run

RECORDS = 8_000_000
LEAD = 4_000_000
ROUNDS = 3


def main() -> int:
    options = _options()
    if options.report:
        _write_docs(joined([Results.load(path) for path in options.report]), options)
        return 0
    try:
        results, path = _run(options)
    except SinkError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(render(results, path.stem))
    if options.docs or not _partial(options):
        _write_docs(results, options)
    return 1 if results.failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Compare the sink with others.")
    parser.add_argument("--records", type=int, default=RECORDS, help="counted records of a run (default: %(default)s)")
    parser.add_argument(
        "--lead",
        type=int,
        default=LEAD,
        help="records of the sink's one transaction, which are also the warm-up",
    )
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help="every peer runs once in each (default: %(default)s)"
    )
    parser.add_argument(
        "--peers", default=",".join(peer.name for peer in ALL), help="names, or patterns like `d*`; `none` for none"
    )
    parser.add_argument("--heap", default="2g", help="heap of every JVM that is compared")
    parser.add_argument(
        "--freshness",
        choices=("none", "new", "aged"),
        default="aged",
        help="at a trickle; `aged`: again after many commits",
    )
    parser.add_argument("--commits", type=int, default=freshness.MANY_COMMITS, help="commits of an aged table")
    parser.add_argument(
        "--directory",
        type=Path,
        help="keep servers' data, logs and the filled topic there, and use them again",
    )
    parser.add_argument("--docs", action="store_true", help="write the docs from a partial run too")
    parser.add_argument(
        "--report", type=Path, nargs="+", help="only write the docs, from these files of results, joined"
    )
    parser.add_argument(
        "--into", default="benchmarks", help="docs are docs/NAME.md, .png and .json (default: %(default)s)"
    )
    parser.add_argument("--note", default="", help="what is to be said of it, at the head of the docs")
    return parser.parse_args()


def _arguments(given: list[str], directory: Path | None) -> list[str]:
    """As they were given; where this machine keeps its data is nobody's business."""
    return [each.replace(str(directory), directory.name) if directory else each for each in given]


def _partial(options: argparse.Namespace) -> bool:
    full = (RECORDS, ROUNDS, {peer.name for peer in ALL}, "aged")
    return (options.records, options.rounds, set(options.peers.split(",")), options.freshness) != full


def _run(options: argparse.Namespace) -> tuple[Results, Path]:
    peers = [] if options.peers == "none" else chosen(options.peers.split(","))
    unit = PARTITIONS
    if options.records % options.lead or options.lead % unit:
        raise ConfigError(f"--records has to be a multiple of --lead, and --lead of {unit}: transactions are equal")
    load = Load(options.records, options.lead, options.lead)
    command = " ".join(["python -m tests.bench", *_arguments(sys.argv[1:], options.directory)])
    results = begin(command, records=str(load.records), lead=str(load.lead), heap=options.heap)
    path = kept(results)
    directory = (options.directory or Path(tempfile.mkdtemp(prefix="sink-bench-"))).absolute()
    try:
        with (
            ZooKeeperServer(directory / "zookeeper") as zookeeper,
            KafkaServer(directory / "kafka", heap="1g") as kafka,
        ):
            lab = Lab(directory, zookeeper, kafka, f"orders-{load.total}", load, CORES, options.heap)
            filled = fill(kafka.address, lab.topic, load.total)
            say(f"{load.total} records ({filled.bytes} bytes), filled in {filled.seconds:.0f} s")
            for number in range(1, options.rounds + 1):
                for peer in peers:
                    results = with_run(results, peer.name, number, partial(peer.run, lab, number))
                    results.save(path)
            if options.freshness != "none":
                commits = options.commits if options.freshness == "aged" else 0
                for found in freshness.measure(lab, commits, say):
                    results = replace(results, freshness=(*results.freshness, found))
                    results.save(path)
                    say(f"after {found.commits} commits: p50 {found.p50:.2f} s, p99 {found.p99:.2f} s")
    finally:
        if options.directory is None:
            shutil.rmtree(directory, ignore_errors=True)
    return results, path


def _write_docs(results: Results, options: argparse.Namespace) -> None:
    results = replace(results, note=options.note or results.note)
    name = DOCS / options.into
    draw(results, name.with_suffix(".png"))
    results.save(name.with_suffix(".json"))
    name.with_suffix(".md").write_text(render(results, options.into))
    say(f"written: {name}.md, .png and .json")


if __name__ == "__main__":
    sys.exit(main())
