"""The rows that the table has now, by file group, and new versions of file groups without some of them.

Guarantee: a new version has the group's other rows unchanged, those of its log files included. Storage is listed: a
file that was damaged in place is read as it is, not by what the table notes of it. Raises TableError for a group that
cannot be written again, and what Spark raises.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from operator import itemgetter

import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from coordination.errors import TableError
from sink.clients.spark.privacy import local_rows
from sink.hudi.file_groups import Group, NewestBaseFile
from sink.hudi.specification import TableSpecification
from sink.hudi.table import Table
from sink.relanding.history import History
from sink.write.engines.rewritten_files import GROUP, STAT, FileVersion, NewVersion, RewriteJob, rewrite

_FILES_AT_ONCE = 16
"""Files that are looked at side by side."""
_MAGIC = b"PAR1"
"""The end of every Parquet file."""
COMMIT, PATH, FILE = "_hoodie_commit_time", "_hoodie_partition_path", "_hoodie_file_name"
_KEY_FOOTERS = (b"org.apache.hudi.bloomfilter",)
"""A base file whose footer has this says there which keys it has; so does its new version."""


@dataclass(frozen=True)
class Affected:
    """Rows that go, by file group and by the instants that wrote them."""

    groups: Mapping[Group, int] = field(default_factory=dict)
    commits: Mapping[str, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(self.groups.values())


class RelandedRows:
    """`history` names the files that readers see."""

    def __init__(self, spark: SparkSession, specification: TableSpecification, table: Table, history: History) -> None:
        self._spark, self._specification, self._table, self._live = spark, specification, table, history.live
        self._storage = specification.store.open()
        reader = spark.read.format("hudi").option("hoodie.metadata.enable", "false")
        frame = reader.load(specification.base_path)
        if FILE not in frame.columns:
            raise TableError(
                f"{specification.base_path}: hoodie.populate.meta.fields=false: rows do not say in which file they are"
            )
        self.frame = frame.withColumn(GROUP, F.concat_ws("/", PATH, F.split(F.col(FILE), "_")[0]))

    def affected(self, rows: DataFrame) -> Affected:
        """Counts rows of `frame`."""
        groups: dict[Group, int] = {}
        commits: dict[str, int] = {}
        counted = rows.groupBy(PATH, F.split(F.col(FILE), "_")[0].alias("id"), COMMIT).count()
        for path, file_id, commit, count in map(tuple, local_rows(counted)):
            groups[path, file_id] = groups.get((path, file_id), 0) + count
            commits[commit] = commits.get(commit, 0) + count
        return Affected(groups, commits)

    def damaged(self) -> dict[Group, str]:
        """Returns the groups whose base file is missing or has another size than its commit says, with the reason.
        Raises TableError for one that nothing can read."""
        with ThreadPoolExecutor(_FILES_AT_ONCE) as looks:
            found = list(looks.map(self._look, self._live.values()))
        if unreadable := [
            file.path for file, (_, is_parquet) in zip(self._live.values(), found, strict=True) if not is_parquet
        ]:
            raise TableError(
                f"not Parquet files any more: {', '.join(unreadable)}. Move them out of the table, and run this again:"
                " their rows are missing ones then."
            )
        return {group: reason for group, (reason, _) in zip(self._live, found, strict=True) if reason}

    def _look(self, file: NewestBaseFile) -> tuple[str, bool]:
        """Returns what is wrong with a file, or an empty text, and whether what is there ends as Parquet does."""
        path = file.path
        if not self._storage.exists(path):
            return f"{path} is not on storage", True
        with self._storage.files.open_input_file(self._storage.locate(path)) as opened:
            size = opened.size()
            end = opened.read_at(len(_MAGIC), size - len(_MAGIC)) if size > len(_MAGIC) else b""
        is_other = size != file.size
        return f"{path} has {size:,} bytes, its commit says {file.size:,}" if is_other else "", end == _MAGIC

    def rewrite(
        self,
        instant: str,
        affected: Affected,
        others: Iterable[Group],
        is_kept: Callable[[DataFrame], DataFrame],
        added: DataFrame | None = None,
        inserts: Mapping[Group, int] | None = None,
    ) -> list[str]:
        """Writes new versions of the affected groups and of `others`, with the rows that `is_kept` leaves and those of
        `added`, which have the columns of `frame`; `inserts` counts these. Returns the write stats."""
        inserts = inserts or {}
        versions = {
            group: self._version(group, affected.groups.get(group, 0), inserts.get(group, 0))
            for group in sorted({*affected.groups, *others, *inserts})
        }
        if not versions:
            return []
        groups = {self._name(group): version for group, version in versions.items()}
        rows = is_kept(self.frame.where(F.col(GROUP).isin(list(groups))))
        if added is not None:
            rows = rows.unionByName(added)
        groups |= self._findable(groups, rows)
        table = self._specification
        job = RewriteJob(table.base_path, instant, table.arrow_codec, groups, table.store.access)
        parts = min(len(groups), 2 * self._spark.sparkContext.defaultParallelism)
        ordered = rows.repartition(parts, GROUP).sortWithinPartitions(GROUP)
        written = [row[0] for row in local_rows(ordered.mapInArrow(partial(rewrite, job), STAT))]
        done = {_file_id(stat) for stat in written}
        schema = to_arrow_schema(rows.drop(GROUP).schema)
        # No task brings rows for these.
        emptied = [version for version in groups.values() if version.file_id not in done]
        return [*written, *(NewVersion(job, version, "0-0-0", schema).close() for version in emptied)]

    def _findable(self, groups: Mapping[str, FileVersion], rows: DataFrame) -> dict[str, FileVersion]:
        """Returns the versions whose footers have to say which keys they have, with that: for the index."""
        is_keyed = self._specification.upserts
        wanted = {name: version for name, version in groups.items() if is_keyed or version.footer}
        if not wanted:
            return {}
        keys = rows.where(F.col(GROUP).isin(list(wanted))).select(GROUP, "_hoodie_record_key").sort(GROUP)
        no_key = self._table.steps.bloom_footer(())
        found = {name: replace(version, footer=no_key) for name, version in wanted.items()}
        for name, of_group in groupby(map(tuple, local_rows(keys)), itemgetter(0)):
            footer = self._table.steps.bloom_footer([str(key) for _, key in of_group])
            found[name] = replace(wanted[name], footer=footer)
        return found

    @staticmethod
    def _name(group: Group) -> str:
        """Returns the value of `GROUP` in rows of the group: as `concat_ws`, which leaves nothing out but null."""
        return f"{group[0]}/{group[1]}"

    def _version(self, group: Group, deletes: int, inserts: int) -> FileVersion:
        path, file_id = group
        version = FileVersion(path, file_id, deletes=deletes, inserts=inserts)
        if (live := self._live.get(group)) is None:
            return version
        name = live.path.rpartition("/")[2]
        if not self._storage.exists(live.path):
            return replace(version, commit=live.commit)
        with self._storage.files.open_input_file(self._storage.locate(live.path)) as file:
            known = pq.read_metadata(file).metadata or {}
        footer = {key.decode(): known[key].decode() for key in _KEY_FOOTERS if key in known}
        return replace(version, earlier=name, commit=live.commit, footer=footer)


def of_offsets(pieces: Sequence[tuple[str, int, int, int]]) -> Column:
    """Returns the condition that a row is of one of these: topic, partition, first offset, the one after the last."""
    condition = F.lit(False)
    for topic, partition, start, end in pieces:
        condition |= (
            (F.col("_kafka_topic") == topic)
            & (F.col("_kafka_partition") == partition)
            & F.col("_kafka_offset").between(start, end - 1)
        )
    return F.coalesce(condition, F.lit(False))


def _file_id(stat: str) -> str:
    return str(json.loads(stat)["fileId"])
