"""Repairs ranges of offsets: reads the log and the table, decides what has to change, and writes the files.

`AppendRepair` is for tables with one row per record, `KeyedRepair` for tables whose rows are changed by key. Guarantee:
`preview` and `write` of one object use the same reading of table and log. `write` writes files under a pending instant;
the caller completes it. Raises Conflict, TableError, and what Spark, the reader and the engine raise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from coordination.errors import Conflict, TableError
from coordination.planning.relanding import CommittedSlice, Relanding, differences
from coordination.state.model import LogView, Slice, WriteTask
from sink.bad_records.table import ErrorsTable
from sink.clients.spark.privacy import local_rows
from sink.hudi.file_groups import Group
from sink.hudi.specification import TableSpecification
from sink.hudi.table import Table
from sink.operations.operator_commit import Begun
from sink.relanding.history import History
from sink.relanding.placement import placed, with_groups
from sink.relanding.survey import NUMBER, RepairSurvey
from sink.relanding.table_rows import Affected, RelandedRows, of_offsets
from sink.relanding.winners import winners
from sink.schema.table_schema import TableSchema
from sink.write.engines.engine import change_keys, engine_of
from sink.write.engines.task_input import Inputs
from sink.write.rows.changes import LOG_POSITION
from sink.write.rows.row_spec import ColumnResolver
from sink.write.rows.specification import RecordSpecification

_NEW_GROUPS = {"hoodie.parquet.small.file.limit": "0"}
"""Disables Hudi's small-file handling: an insert could extend a small file that this commit also rewrites."""
Run = tuple[str, str, int, int, int, int]
"""Topic, topic id, partition, generation, first offset and the one after the last."""


@dataclass(frozen=True)
class Preview:
    """Describes the effect of a repair, planned or completed. With `refusals` nothing is written."""

    pieces: tuple[Slice, ...] = ()
    records: int = 0
    """Records of the log in the ranges, bad ones included."""
    deleted: int = 0
    """Rows that the repair deletes from the table."""
    landed: int = 0
    """Rows that it writes instead."""
    groups: tuple[Group, ...] = ()
    """File groups that are rewritten: those that lose rows, and damaged ones."""
    notes: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    number: int = 0
    instant: str = ""
    """Transaction and instant of the completed repair; 0 and empty before it."""


@dataclass(frozen=True)
class WrittenRepair:
    stats: tuple[str, ...]
    schemas: tuple[tuple[str, str], ...]
    records: int
    """Records that the commit adds, each as one row; 0 for a KeyedRepair, whose rows are not one per record."""
    runs: tuple[Run, ...]
    """The offsets whose rows this commit wrote or deleted."""


@dataclass(frozen=True)
class RepairContext:
    spark: SparkSession
    specification: TableSpecification
    records: RecordSpecification
    schema: TableSchema
    table: Table
    errors: ErrorsTable
    inputs: Inputs
    log: LogView
    history: History


class Repair(ABC):
    def __init__(self, at: RepairContext, plan: Relanding) -> None:
        self._at, self._plan = at, plan
        # Reads the timeline and the table's columns, which the resolver and `write` use.
        at.table.view()
        # No partitions: the newest columns, whatever the log holds.
        resolved = ColumnResolver(at.specification, at.records, at.table).resolve(LogView("", {}))
        if resolved.schema_conflict is not None:
            raise TableError(resolved.schema_conflict.reason)
        self.columns = resolved.columns
        self._spec = engine_of(at.spark, at.specification, at.records, at.schema).spec(self.columns)
        self._rows = RelandedRows(at.spark, at.specification, at.table, at.history)
        self._survey = RepairSurvey(at.spark, at.inputs, self._spec, plan.needed, plan.pieces, at.log.cluster)
        self._known_bad: Mapping[Slice, Collection[int]] = self._bad_of(plan.needed)
        self._damaged = self._rows.damaged()

    @abstractmethod
    def preview(self) -> Preview:
        """Reads table and log, and keeps what `write` needs."""

    @abstractmethod
    def write(self, begun: Begun) -> WrittenRepair:
        """Writes the files of the commit under the instant of `begun`. Call `preview` first, on the same object."""

    def close(self) -> None:
        self._survey.close()

    @property
    def _offsets(self) -> list[tuple[str, int, int, int]]:
        return [(piece.topic, piece.partition, piece.start, piece.end) for piece in self._plan.pieces]

    def _bad_of(self, needed: Sequence[CommittedSlice]) -> dict[Slice, set[int]]:
        """Returns the offsets of each slice that are in the errors table and were not replayed."""
        by_slice = {entry.slice: set[int]() for entry in needed if entry.result.errors}
        if not by_slice or not self._at.errors.exists():
            return by_slice
        instants = sorted(self._at.history.own)
        rows = self._at.errors.rows().where(F.col("replayed_instant").isNull() & F.col("instant").isin(instants))
        columns = ("_kafka_topic", "topic_id", "_kafka_partition", "generation", "_kafka_offset")
        for *place, offset in map(tuple, local_rows(rows.select(*columns))):
            for slice_, offsets in by_slice.items():
                own = [slice_.topic, slice_.topic_id, slice_.partition, slice_.generation]
                if own == place and slice_.start <= offset < slice_.end:
                    offsets.add(offset)
        return by_slice

    def _previewed(self, affected: Affected, records: int, landed: int, refusals: Sequence[str]) -> Preview:
        groups = {*affected.groups, *self._damaged}
        reasons = (*refusals, *self._compacted(groups))
        notes = tuple(self._notes(affected))
        return Preview(self._plan.pieces, records, affected.rows, landed, tuple(sorted(groups)), notes, reasons)

    def _notes(self, affected: Affected) -> Iterator[str]:
        for reason in self._damaged.values():
            yield f"{reason}: its file group is rewritten with the rows that remain"
        for commit, rows in sorted(affected.commits.items()):
            if commit not in self._at.history.of_sinks:
                yield f"{rows:,} of these rows are of commit {commit}, which another writer made"

    def _removals(self) -> str:
        """Returns the commits of other writers that deleted rows; empty without any."""
        return ", ".join(self._at.history.removals[:5])

    def _compacted(self, groups: Collection[Group]) -> list[str]:
        """Returns why groups cannot be written again now."""
        pending = self._at.table.steps.pending_compactions()
        return [
            f"file group {file_id} has a pending compaction ({pending[file_id]}). Let it complete first."
            for _, file_id in sorted(groups)
            if file_id in pending
        ]


class AppendRepair(Repair):
    """Repairs tables with one row per record: deletes the rows of the offsets and writes the log's records again."""

    def preview(self) -> Preview:
        plan = self._plan
        if plan.refusals:
            return Preview(plan.pieces, refusals=plan.refusals)
        self._survey.frame.select(F.lit(1)).count()
        going = self._rows.frame.where(of_offsets(self._offsets))
        self._affected = self._rows.affected(going)
        self._records, self._digest = self._survey.landed(plan.pieces)
        self._bad = {
            (slice_.topic, slice_.partition, offset)
            for slice_, offsets in self._known_bad.items()
            for offset in offsets
            if plan.is_landed(slice_, offset)
        }
        refusals = differences(plan, self._survey.found(), self._known_bad)
        landed = self._records - len(self._bad)
        present = going.select("_kafka_topic", "_kafka_partition", "_kafka_offset").distinct().count()
        if present > landed:
            refusals.append(
                f"the table has rows of {present:,} of these offsets, but the log has only {landed:,} good records: the"
                " repair would delete rows that the log can no longer replace"
            )
        if (removals := self._removals()) and present < landed:
            refusals.append(
                f"{landed - present:,} rows of these offsets are missing, and commits of other writers deleted rows"
                f" ({removals}): the repair might restore rows that were deleted on purpose"
            )
        return self._previewed(self._affected, self._records, landed, refusals)

    def write(self, begun: Begun) -> WrittenRepair:
        at, pieces = self._at, self._plan.pieces
        condition = of_offsets(self._offsets)
        stats = self._rows.rewrite(begun.instant, self._affected, self._damaged, lambda rows: rows.where(~condition))
        # In this namespace no other commit has its file ids, and a repetition has them again.
        namespace = f"{at.specification.sink} reland {begun.number}"
        table = replace(at.specification, namespace=namespace, options={**at.specification.options, **_NEW_GROUPS})
        engine = engine_of(at.spark, table, at.records, at.schema)
        records = at.inputs.of_records(pieces, at.log.cluster)
        if self._bad:
            kinds = "topic string, partition int, offset long"
            bad = at.spark.createDataFrame(sorted(self._bad), kinds)
            records = records.join(F.broadcast(bad), ["topic", "partition", "offset"], "left_anti")
        written = engine.write(begun.instant, [WriteTask((piece,)) for piece in pieces], self.columns, records)
        landed, errors = (sum(getattr(r, name) for r in written.results) for name in ("records", "errors"))
        digest = sum(result.digest for result in written.results) % (1 << 64)
        if errors or landed != self._records - len(self._bad) or (not self._bad and digest != self._digest):
            raise Conflict("the log returned other records than the preview read. Nothing was committed. Try again.")
        if existing := at.table.existing_file_ids(written.stats):
            raise TableError(f"the table already holds file ids of this repair ({', '.join(existing[:3])})")
        return WrittenRepair((*stats, *written.stats), written.schemas, landed, tuple(map(_run, pieces)))


class KeyedRepair(Repair):
    """Repairs tables whose rows are changed by key: each key in the ranges gets the row that the whole log yields, or
    none.
    """

    def preview(self) -> Preview:
        at, plan = self._at, self._plan
        if plan.refusals:
            return Preview(plan.pieces, refusals=plan.refusals)
        keys = change_keys(at.specification)
        changes = self._changes = self._without_bad(self._survey.frame).persist(StorageLevel.DISK_ONLY)
        changes.count()
        refusals = differences(plan, self._survey.found(), self._known_bad)
        names = dict(zip(LOG_POSITION.names, ("_kafka_topic", "_kafka_partition", "_kafka_offset"), strict=True))
        in_log = changes.withColumns({own: F.col(name) for name, own in names.items()}).where(of_offsets(self._offsets))
        in_table = self._rows.frame.where(of_offsets(self._offsets))
        concerned = _keys(in_log, keys).unionByName(_keys(in_table, keys))
        self._concerned = concerned.distinct().persist(StorageLevel.DISK_ONLY)
        going = self._having(self._rows.frame, "left_semi")
        self._affected = self._rows.affected(going)
        ours = changes.withColumns(dict(keys)).join(self._concerned, list(keys), "left_semi").select(*changes.columns)
        self._winners = winners(ours, keys, at.specification.ordering).persist(StorageLevel.DISK_ONLY)
        landed = self._winners.count()
        self._records, _ = self._survey.landed(plan.pieces)
        others = sorted(self._affected.commits.keys() - at.history.of_sinks)
        if others:
            refusals.append(f"commits of other writers have changed rows of these keys: {', '.join(others[:5])}")
        if removals := self._removals():
            refusals.append(f"commits of other writers deleted rows, perhaps of these keys, on purpose: {removals}")
        return self._previewed(self._affected, self._records, landed, refusals)

    def write(self, begun: Begun) -> WrittenRepair:
        at = self._at
        rows = self._winners.select(*self._spec.schema.spark.names)
        keep = partial(self._having, how="left_anti")
        if at.specification.index == "bucket":
            added, inserts = self._in_buckets(rows, begun.instant)
            stats = self._rows.rewrite(begun.instant, self._affected, self._damaged, keep, added, inserts)
        else:
            stats = self._rows.rewrite(begun.instant, self._affected, self._damaged, keep)
            # In file groups of their own: an index of keys takes the new place from the files of the commit.
            columns = at.schema.with_columns(self.columns).avro(at.specification.name)
            hudi = at.table.steps.with_options(at.table.steps.options, columns)
            stats += hudi.bulk_insert_rows(rows.coalesce(1)._jdf, begun.instant)
        return WrittenRepair(tuple(stats), self._survey.schemas, 0, self._runs())

    def close(self) -> None:
        for name in ("_changes", "_concerned", "_winners"):
            if (frame := vars(self).get(name)) is not None:
                frame.unpersist()
        super().close()

    def _without_bad(self, changes: DataFrame) -> DataFrame:
        """Leaves out what is in the errors table, though it may be good by now."""
        bad = [(s.topic, s.partition, offset) for s, offsets in self._known_bad.items() for offset in offsets]
        if not bad:
            return changes
        kinds = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in LOG_POSITION.fields)
        frame = self._at.spark.createDataFrame(sorted(bad), kinds)
        return changes.join(F.broadcast(frame), LOG_POSITION.names, "left_anti")

    def _having(self, rows: DataFrame, how: str) -> DataFrame:
        """Returns the rows of the concerned keys, or the others."""
        keys = change_keys(self._at.specification)
        own = {f"_own_{name}": column for name, column in keys.items()}
        named = self._concerned.select(*(F.col(name).alias(f"_own_{name}") for name in keys))
        return rows.withColumns(own).join(named, list(own), how).select(*rows.columns)

    def _in_buckets(self, rows: DataFrame, instant: str) -> tuple[DataFrame, dict[Group, int]]:
        groups = {*self._at.history.live, *self._at.history.logged}
        with_places = placed(rows, self._spec, instant)
        return with_groups(self._at.spark, self._at.specification, with_places, groups, self._rows.frame.columns)

    def _runs(self) -> tuple[Run, ...]:
        """Returns the repaired ranges, and the offset of each written row outside them."""
        pieces = self._plan.pieces
        runs = [*map(_run, pieces)]
        by_number: dict[int, list[Slice]] = defaultdict(list)
        for entry in self._plan.needed:
            by_number[entry.number].append(entry.slice)
        for number, *place in map(tuple, local_rows(self._winners.select(NUMBER, *LOG_POSITION.names))):
            if not any(_holds(piece, *place) for piece in pieces):
                offset = place[2]
                runs += [
                    (piece.topic, piece.topic_id, piece.partition, piece.generation, offset, offset + 1)
                    for piece in by_number[number]
                    if _holds(piece, *place)
                ]
        return _joined(runs)


def _holds(piece: Slice, topic: str, partition: int, offset: int) -> bool:
    return (piece.topic, piece.partition) == (topic, partition) and piece.start <= offset < piece.end


def _keys(rows: DataFrame, keys: Mapping[str, object]) -> DataFrame:
    return rows.withColumns(dict(keys)).select(*keys)  # type: ignore[arg-type]


def _run(piece: Slice) -> Run:
    return piece.topic, piece.topic_id, piece.partition, piece.generation, piece.start, piece.end


def _joined(runs: Collection[Run]) -> tuple[Run, ...]:
    """Joins runs that follow one another."""
    found: list[Run] = []
    for run in sorted(runs):
        if found and found[-1][:4] == run[:4] and found[-1][5] >= run[4]:
            found[-1] = (*found[-1][:5], max(found[-1][5], run[5]))
        else:
            found.append(run)
    return tuple(found)
