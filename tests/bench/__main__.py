"""`python -m tests.bench`: runs the peers in turn, round by round, on topics of different numbers of partitions, and
writes results, `docs/benchmarks.md` and its plot.

With no options it is the full comparison. A partial run (`--records`, `--rounds`, `--peers`, ...) prints its tables and
keeps its JSON, and leaves the docs alone unless `--docs` is given. `--report FILE` writes the docs again from kept
results, of several commands too; `--into NAME` writes them beside those of another machine, or of other peers.
Exit status: 0, or 1 when a peer failed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from coordination.errors import SinkError
from sink.devtools.local.kafka import KafkaServer
from sink.devtools.local.zookeeper import ZooKeeperServer
from tests.bench import backlog, freshness
from tests.bench.cases import Axes, Where, in_turn, millions, numbers
from tests.bench.lab import Lab
from tests.bench.lake_store import add_storage_options, storage
from tests.bench.peers import ALL, USUAL, Peer, chosen
from tests.bench.report import render
from tests.bench.results import Results, Run, joined
from tests.bench.running import BROKER_HEAP, CORES, DOCS, begin, kept, say, with_run
from tests.bench.scale_section import write_section
from tests.bench.topics import BATCH, fill

USUAL_PAGE = "benchmarks"


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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Compare the sink with others.")
    add = parser.add_argument
    add("--partitions", default="4,128,1024", help="Kafka partitions of the topics (default: %(default)s)")
    add("--warm-up", default="2,4", help="millions of records before the counted ones (default: %(default)s)")
    add("--records", type=int, default=8_000_000, help="counted after the largest warm-up (default: %(default)s)")
    add("--rounds", type=int, default=3, help="every peer runs once in each (default: %(default)s)")
    names = ", ".join(peer.name for peer in ALL)
    add("--peers", default=",".join(USUAL), help=f"of {names}; `d*`: a pattern; `none` (default: %(default)s)")
    add("--heap", default="2g", help="heap of every other JVM that is compared (default: %(default)s)")
    add("--sink-heap", default="1g", help="heap of the sink's JVM (default: %(default)s, the setting's own)")
    add("--freshness", choices=("none", "new", "aged"), default="aged", help="`aged`: after many commits too")
    add("--freshness-partitions", default="4,128", help="(default: %(default)s)")
    add("--commits", type=int, default=freshness.MANY_COMMITS, help="commits of an aged table (default: %(default)s)")
    add("--backlog", type=int, default=backlog.RECORDS, help="records, some of 5 MB; 0: not run (default: %(default)s)")
    add_storage_options(parser)
    add("--in-flight", type=int, default=0, help="transactions.in.flight of the trickle (default: the setting's own)")
    add("--directory", type=Path, help="keep servers' data, logs and the filled topics there, and use them again")
    add("--docs", action="store_true", help="write the docs from a partial run too")
    add("--report", type=Path, nargs="+", help="only write the docs, from these files of results, joined")
    add("--into", default=USUAL_PAGE, help="docs are docs/NAME.md, .png and .json (default: %(default)s)")
    add("--note", default="", help="what is to be said of it, at the head of the docs")
    return parser


def _options(words: list[str] | None = None) -> argparse.Namespace:
    return _parser().parse_args(words)


def _arguments(given: list[str], directory: Path | None) -> list[str]:
    """As they were given; where this machine keeps its data is nobody's business."""
    named = [each.replace(str(directory), directory.name) if directory else each for each in given]
    return ["minio" if before == "--minio" else each for before, each in zip(["", *named], named, strict=False)]


def _partial(options: argparse.Namespace) -> bool:
    """Whether less or something else is measured than with no options."""
    usual = _options([])
    ignored = {"directory", "docs", "report", "into", "note", "minio", "delay_ms"}
    return any(getattr(options, name) != value for name, value in vars(usual).items() if name not in ignored)


def _run(options: argparse.Namespace) -> tuple[Results, Path]:
    peers = [] if options.peers == "none" else chosen(options.peers.split(","))
    axes = Axes(numbers(options.partitions), millions(options.warm_up), options.records)
    trickles = numbers(options.freshness_partitions) if options.freshness != "none" else ()
    command = " ".join(["python -m tests.bench", *_arguments(sys.argv[1:], options.directory)])
    conditions = {"records": str(axes.records), "lead": str(max(axes.warm_ups)), "batch": str(BATCH)}
    if options.storage != "disk":
        conditions |= {"storage": f"{options.storage}, {options.delay_ms:g} ms added to each request"}
    results = begin(command, **conditions, heap=options.heap, **{"sink heap": options.sink_heap})
    path = kept(results)
    directory = (options.directory or Path(tempfile.mkdtemp(prefix="sink-bench-"))).absolute()
    try:
        with (
            ZooKeeperServer(directory / "zookeeper") as zookeeper,
            KafkaServer(directory / "kafka", heap=BROKER_HEAP) as kafka,
            storage(directory, options) as store,
        ):
            first = axes.shapes(Where.NARROW)[0]
            heaps = options.heap, options.sink_heap
            lab = Lab(directory, zookeeper, kafka, "", first, axes.load(first), CORES, *heaps, store)
            for name, number, start in _runs(lab, axes, peers, options.rounds):
                results = with_run(results, name, number, start)
                results.save(path)
            if options.backlog:
                results = _with_backlog(results, lab, options.backlog)
                results.save(path)
            commits = options.commits if options.freshness == "aged" else 0
            for partitions in trickles:
                results = _with_freshness(results, lab, partitions, commits, path, options.in_flight)
    finally:
        if options.directory is None:
            shutil.rmtree(directory, ignore_errors=True)
    return results, path


def _runs(lab: Lab, axes: Axes, peers: Sequence[Peer], rounds: int) -> Iterator[tuple[str, int, Callable[[], Run]]]:
    """Name, round and start of each run, in turn. A topic is filled before it is read first."""
    for number in range(1, rounds + 1):
        for index, shape in in_turn(axes, [peer.where for peer in peers]):
            topic, load = axes.topic(shape, peers[index].where), axes.load(shape)
            if (filled := fill(lab.kafka.address, topic)).records:
                say(f"{topic.name}: {filled.records:,} records ({filled.bytes:,} bytes) in {filled.seconds:.0f} s")
            here = replace(lab, topic=topic.name, shape=shape, load=load)
            yield f"{peers[index].name}, {shape}", number, partial(peers[index].run, here, number)


def _with_backlog(results: Results, lab: Lab, records: int) -> Results:
    try:
        found = backlog.measure(lab, backlog.topic_of(records, backlog.PARTITIONS), say)
    except SinkError as error:
        say(f"backlog: {error}")
        return replace(results, failed=(*results.failed, f"backlog: {error}"))
    say(f"backlog: {found.landed:,} of {found.records:,} landed in {found.seconds:.0f} s, {found.aborted} aborts")
    return replace(results, backlogs=(*results.backlogs, found))


def _with_freshness(results: Results, lab: Lab, partitions: int, commits: int, path: Path, in_flight: int) -> Results:
    more = {"transactions.in.flight": in_flight} if in_flight else {}
    try:
        for found in freshness.measure(lab, partitions, commits, say, more):
            results = replace(results, freshness=(*results.freshness, found))
            results.save(path)
            say(f"{partitions} partitions, {found.commits} commits: p50 {found.p50:.2f} s, p99 {found.p99:.2f} s")
    except SinkError as error:
        say(f"freshness: {error}")
        results = replace(results, failed=(*results.failed, f"freshness, {partitions} partitions: {error}"))
        results.save(path)
    return results


def _write_docs(results: Results, options: argparse.Namespace) -> None:
    results = replace(results, note=options.note or results.note)
    name = DOCS / options.into
    # Where nothing is drawn, matplotlib need not be there.
    from tests.bench.plot import draw

    draw(results, name.with_suffix(".png"))
    results.save(name.with_suffix(".json"))
    name.with_suffix(".md").write_text(render(results, options.into))
    say(f"written: {name}.md, .png and .json")
    if options.into == USUAL_PAGE and write_section(DOCS / "scale.md", results):
        say("written: the real topic in docs/scale.md")


if __name__ == "__main__":
    sys.exit(main())
