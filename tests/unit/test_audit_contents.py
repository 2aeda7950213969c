"""The auditor makes of each case's records the rows that the writer makes, from what a commit says of itself."""

from __future__ import annotations

import json
import pickle
import tarfile
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from sink.audit.checkpoints import LogPartition
from sink.audit.content.changes import Ordering
from sink.audit.content.expected import BAD_SCHEMA, Chunk, ExpectedForm, LogColumns, write_chunk
from sink.audit.content.fold import fold, number_commits
from sink.audit.content.places import Places
from sink.audit.content.specification import specification_of
from sink.audit.log_records import RecordColumns
from sink.config import Settings
from sink.config.record_formats import registry_access, value_format
from sink.decode.file_schema import file_schema
from sink.decode.fingerprints import fingerprint
from sink.decode.registry.client import RegisteredSchema, registry
from sink.hudi.schema_texts import SCHEMAS, SUFFIX, document
from sink.storage.table_files import TableFiles
from sink.write.rows.row_spec import table_schema
from tests.reports.case_kit import CASES, TOPIC, Case, compared, content

SINK = "orders"
BROKEN = Path(__file__).parents[1] / "data" / "broken-tables" / "values.tar.xz"


def _cases() -> list[Any]:
    cases = [Case(path) for path in sorted(CASES.iterdir())]
    return [pytest.param(case, id=case.name) for case in cases if "refused" not in case.expected]


@pytest.mark.parametrize("case", _cases())
def test_the_auditor_and_the_writer_make_the_same_of_a_case(case: Case, tmp_path: Path) -> None:
    with case.settings(tmp_path / "case") as settings:
        rows, bad = audited(settings, case, tmp_path)
    found, expected = compared(rows.to_pylist(), case.expected["rows"])
    assert found == expected, bad
    assert sorted(bad) == case.expected["bad"], bad


def audited(settings: Settings, case: Case, directory: Path) -> tuple[pa.Table, dict[int, str]]:
    """Returns the rows that the auditor expects, and the reasons of bad records by offset."""
    schema = table_schema(settings.table, settings.records)
    own = [field for field in schema.arrow if not field.name.startswith("_hoodie_")]
    is_changed = settings.operation == "upsert"
    ordering = Ordering(settings.table.ordering, settings.key_is_global) if is_changed else None
    target = ExpectedForm(pa.schema(own), Places.of(properties(settings)), ordering)
    ids = kept_schemas(settings, directory)
    spec = specification_of(schema.specification_json, schema.avro(SINK), ids, files(directory))
    folder = directory / "expected"
    folder.mkdir()
    (folder / "spec-0").write_bytes(pickle.dumps((spec, target, [LogPartition(TOPIC, 0)])))
    records = LogColumns()
    for offset, record in enumerate(case.records()):
        key, value = content(record["key"]), content(record["value"])
        records.add(0, 0, RecordColumns([offset], [record.get("timestamp", 0)], [key], [value], [()]))
    assert write_chunk(folder, 0, Chunk(0, records)) is None
    pq.write_table(target.schema.empty_table(), folder / "rows-none.parquet")
    pq.write_table(BAD_SCHEMA.empty_table(), folder / "bad-none.parquet")
    with duckdb.connect(str(directory / "audit.duckdb")) as connection:
        connection.execute(f"CREATE VIEW changes AS SELECT * FROM read_parquet('{folder}/rows-*.parquet')")
        if ordering is not None:
            number_commits(connection, {0: 0})
            fold(connection, ordering)
            connection.execute(
                "CREATE VIEW wanted AS SELECT * FROM changes SEMI JOIN winners USING (_sink_source, _sink_offset)"
            )
        rows = connection.sql(f"FROM {'changes' if ordering is None else 'wanted'}").to_arrow_table()
        bad = connection.execute(f"SELECT _sink_offset, reason FROM read_parquet('{folder}/bad-*.parquet')").fetchall()
    return rows, dict(bad)


def files(directory: Path) -> TableFiles:
    root = str(directory / "table")
    return TableFiles(root, pafs.LocalFileSystem(), root, "", {})


def properties(settings: Settings) -> dict[str, str]:
    return {
        "hoodie.table.recordkey.fields": ",".join(settings.table.record_key),
        "hoodie.table.partition.fields": ",".join(settings.table.partition_columns),
        "hoodie.datasource.write.hive_style_partitioning": str(settings.hive_style).lower(),
        "hoodie.datasource.write.partitionpath.urlencode": str(settings.table.partitions.url_encode).lower(),
    }


def kept_schemas(settings: Settings, directory: Path) -> dict[str, str]:
    """Keeps the schemas of a case in the table in `directory`, as the sink does. Returns fingerprints by id."""
    kept = directory / "table" / SCHEMAS
    kept.mkdir(parents=True)
    schemas: dict[str, RegisteredSchema] = {}
    access = registry_access(settings)
    if access is not None:
        for subject in json.loads((directory / "case" / "subjects.json").read_text()):
            schemas[access.qualified(subject["id"])] = registry(access).schema(subject["id"])
    ids = {name: fingerprint(registered) for name, registered in schemas.items()}
    named = {fingerprint(registered): registered for registered in schemas.values()}
    if (of_file := file_schema(value_format(settings))) is not None:
        named[of_file[0]] = of_file[1]
    for name, registered in named.items():
        (kept / f"{name}{SUFFIX}").write_bytes(document(registered))
    return ids


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("broken")
    with tarfile.open(BROKEN) as archive:
        archive.extractall(directory, filter="data")
    return directory


def _broken_names() -> list[str]:
    with tarfile.open(BROKEN) as archive:
        names = {member.name.split("/")[0] for member in archive.getmembers()}
    return sorted(name for name in names if "refused" not in Case(CASES / name).expected)


@pytest.mark.parametrize("name", _broken_names())
def test_a_kept_table_whose_values_are_wrong_is_not_what_the_auditor_expects(
    name: str, broken: Path, tmp_path: Path
) -> None:
    case = Case(CASES / name)
    with case.settings(tmp_path / "case") as settings:
        wanted, _ = audited(settings, case, tmp_path)
    files = [str(path) for path in (broken / name).rglob("*.parquet") if ".hoodie" not in path.parts]
    columns = ", ".join(f'"{column}"' for column in wanted.column_names if not column.startswith("_"))
    with duckdb.connect() as connection:
        connection.register("wanted", wanted)
        found = f"SELECT {columns} FROM read_parquet({files!r})"
        expected = f"SELECT {columns} FROM wanted"
        query = f"({found} EXCEPT ALL {expected}) UNION ALL ({expected} EXCEPT ALL {found})"
        [(different,)] = connection.execute(f"SELECT count(*) FROM ({query})").fetchall()
    assert different
