"""Tells what is at a table's base path, without Hudi and without a JVM.

`inspect_base_path` tells an empty path, something else and a Hudi table apart, and returns the table's properties and
newest schema. It changes nothing. Raises Unavailable when the storage does not answer, ConfigError for a file system
that pyarrow does not reach.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import fastavro
import javaproperties
import pyarrow as pa
from pyarrow import fs

from coordination.errors import Unavailable
from sink.storage.access import NO_ACCESS, Access
from sink.storage.files import PROBE_PREFIX, Storage, open_storage

PROPERTIES = ".hoodie/hoodie.properties"
INDEXES = ".hoodie/.index_defs/index.json"
_COMPLETED = re.compile(r"\d{17}_\d{17}\.(commit|deltacommit|replacecommit)\Z")


class Content(Enum):
    NOTHING = "nothing"
    TABLE = "a Hudi table"
    OTHER = "something else"


@dataclass(frozen=True, slots=True)
class BasePath:
    """`names` are some of the entries that make it `OTHER`; `schema` is the newest commit's, as Avro;
    `indexes` the definitions of the table's indexes, as JSON, empty if there are none.
    """

    content: Content
    names: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    schema: Mapping[str, Any] | None = None
    indexes: str = ""


def inspect_base_path(base_path: str, access: Access = NO_ACCESS) -> BasePath:
    try:
        storage = open_storage(base_path, access)
        kind = storage.files.get_file_info(storage.root).type
        if kind is fs.FileType.File:
            return BasePath(Content.OTHER, ("a file",))
        if storage.exists(PROPERTIES):
            properties = javaproperties.loads(_read_text(storage, PROPERTIES))
            indexes = _read_text(storage, INDEXES) if storage.exists(INDEXES) else ""
            return BasePath(Content.TABLE, (), properties, _newest_schema(storage, properties), indexes)
        names = storage.names("") if kind is fs.FileType.Directory else []
        names = [name for name in names if not name.startswith(PROBE_PREFIX)]
    except (OSError, pa.ArrowException) as error:
        raise Unavailable(f"{base_path} cannot be read ({error}). Check target.base.path and access to it.") from error
    return BasePath(Content.OTHER if names else Content.NOTHING, tuple(sorted(names)[:5]))


def _newest_schema(storage: Storage, properties: Mapping[str, str]) -> Mapping[str, Any] | None:
    """Returns the schema of the newest commit that carries one, else that of the table's creation."""
    timeline = f".hoodie/{properties.get('hoodie.timeline.path', 'timeline')}"
    # By completion time, newest first: the name is <requested>_<completed>.<action>.
    completed = sorted(filter(_COMPLETED.match, storage.names(timeline)), key=lambda n: n[18:35], reverse=True)
    for name in completed[:20]:
        try:
            records: list[Any] = list(fastavro.reader(io.BytesIO(_read_bytes(storage, f"{timeline}/{name}"))))
            document = records[0]["extraMetadata"]["schema"]
        except (ValueError, LookupError, TypeError, EOFError, FileNotFoundError):
            continue
        if document:
            return _schema(document)
    return _schema(properties.get("hoodie.table.create.schema", ""))


def _schema(document: str) -> Mapping[str, Any] | None:
    try:
        schema = json.loads(document)
    except ValueError:
        return None
    return schema if isinstance(schema, dict) and isinstance(schema.get("fields"), list) else None


def _read_text(storage: Storage, path: str) -> str:
    return _read_bytes(storage, path).decode("utf-8", "replace")


def _read_bytes(storage: Storage, path: str) -> bytes:
    with storage.files.open_input_stream(storage.locate(path)) as stream:
        content: bytes = stream.read()
    return content
