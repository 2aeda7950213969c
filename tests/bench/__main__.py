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
from tests.bench.cases import Axes, ShapeSelection, interleaved, millions, numbers
from tests.bench.lab import Lab
from tests.bench.lake_store import add_storage_options, storage
from tests.bench.peers import ALL, USUAL, Peer, select_peers
from tests.bench.report import render
from tests.bench.results import Results, Run, merge_results
from tests.bench.running import BROKER_HEAP, CORES, DOCS, begin, print_progress, results_path, with_run
from tests.bench.topics import BATCH, fill

USUAL_PAGE = "benchmarks"


def main() -> int:
    options = _options()
    if options.report:
        _write_docs(merge_results([Results.load(path) for path in options.report]), options)
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
    add("--note", default="", help="a remark for the head of the docs")
    return parser


def _options(arguments: list[str] | None = None) -> argparse.Namespace:
    return _parser().parse_args(arguments)


def _arguments(arguments: list[str], directory: Path | None) -> list[str]:
    """Returns the arguments without this machine's paths: the directory's name alone, and `minio` for its program."""
    shortened = [argument.replace(str(directory), directory.name) if directory else argument for argument in arguments]
    return [
        "minio" if previous == "--minio" else argument
        for previous, argument in zip(["", *shortened], shortened, strict=False)
    ]


def _partial(options: argparse.Namespace) -> bool:
    """Returns whether the run measures less than the full comparison, or something else."""
    usual = _options([])
    ignored = {"directory", "docs", "report", "into", "note", "minio", "delay_ms"}
    return any(getattr(options, name) != value for name, value in vars(usual).items() if name not in ignored)


def _run(options: argparse.Namespace) -> tuple[Results, Path]:
    peers = [] if options.peers == "none" else select_peers(options.peers.split(","))
    axes = Axes(numbers(options.partitions), millions(options.warm_up), options.records)
    freshness_partitions = numbers(options.freshness_partitions) if options.freshness != "none" else ()
    command = " ".join(["python -m tests.bench", *_arguments(sys.argv[1:], options.directory)])
    conditions = {"records": str(axes.records), "lead": str(max(axes.warm_ups)), "batch": str(BATCH)}
    if options.storage != "disk":
        conditions |= {"storage": f"{options.storage}, {options.delay_ms:g} ms added to each request"}
    results = begin(command, **conditions, heap=options.heap, **{"sink heap": options.sink_heap})
    path = results_path(results)
    directory = (options.directory or Path(tempfile.mkdtemp(prefix="sink-bench-"))).absolute()
    try:
        with (
            ZooKeeperServer(directory / "zookeeper") as zookeeper,
            KafkaServer(directory / "kafka", heap=BROKER_HEAP) as kafka,
            storage(directory, options) as store,
        ):
            first = axes.shapes(ShapeSelection.NARROW)[0]
            heaps = options.heap, options.sink_heap
            lab = Lab(directory, zookeeper, kafka, "", first, axes.load(first), CORES, *heaps, store)
            for name, number, start in _runs(lab, axes, peers, options.rounds):
                results = with_run(results, name, number, start)
                results.save(path)
            if options.backlog:
                results = _with_backlog(results, lab, options.backlog)
                results.save(path)
            commits = options.commits if options.freshness == "aged" else 0
            for partitions in freshness_partitions:
                results = _with_freshness(results, lab, partitions, commits, path, options.in_flight)
    finally:
        if options.directory is None:
            shutil.rmtree(directory, ignore_errors=True)
    return results, path


def _runs(lab: Lab, axes: Axes, peers: Sequence[Peer], rounds: int) -> Iterator[tuple[str, int, Callable[[], Run]]]:
    """Yields name, round and start of each run, in turn. Fills a topic before its first run."""
    for number in range(1, rounds + 1):
        for index, shape in interleaved(axes, [peer.selection for peer in peers]):
            topic, load = axes.topic(shape, peers[index].selection), axes.load(shape)
            if (filled := fill(lab.kafka.address, topic)).records:
                size = f"{filled.records:,} records ({filled.bytes:,} bytes)"
                print_progress(f"{topic.name}: {size} in {filled.seconds:.0f} s")
            run_lab = replace(lab, topic=topic.name, shape=shape, load=load)
            yield f"{peers[index].name}, {shape}", number, partial(peers[index].run, run_lab, number)


def _with_backlog(results: Results, lab: Lab, records: int) -> Results:
    try:
        result = backlog.measure(lab, backlog.topic_of(records, backlog.PARTITIONS), print_progress)
    except SinkError as error:
        print_progress(f"backlog: {error}")
        return replace(results, failed=(*results.failed, f"backlog: {error}"))
    landed = f"{result.landed:,} of {result.records:,} landed in {result.seconds:.0f} s"
    print_progress(f"backlog: {landed}, {result.aborted} aborts")
    return replace(results, backlogs=(*results.backlogs, result))


def _with_freshness(results: Results, lab: Lab, partitions: int, commits: int, path: Path, in_flight: int) -> Results:
    sink_settings = {"transactions.in.flight": in_flight} if in_flight else {}
    try:
        for result in freshness.measure(lab, partitions, commits, print_progress, sink_settings):
            results = replace(results, freshness=(*results.freshness, result))
            results.save(path)
            percentiles = f"p50 {result.p50:.2f} s, p99 {result.p99:.2f} s"
            print_progress(f"{partitions} partitions, {result.commits} commits: {percentiles}")
    except SinkError as error:
        print_progress(f"freshness: {error}")
        results = replace(results, failed=(*results.failed, f"freshness, {partitions} partitions: {error}"))
        results.save(path)
    return results


def _write_docs(results: Results, options: argparse.Namespace) -> None:
    results = replace(results, note=options.note or results.note)
    name = DOCS / options.into
    # Imported here, because only drawing needs matplotlib.
    from tests.bench.plot import draw

    draw(results, name.with_suffix(".png"))
    results.save(name.with_suffix(".json"))
    name.with_suffix(".md").write_text(render(results, options.into))
    print_progress(f"written: {name}.md, .png and .json")


if __name__ == "__main__":
    sys.exit(main())
