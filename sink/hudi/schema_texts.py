"""Keeps in the table the schemas that decoded its records, so that an audit of its commits needs no registry.

A commit names them by fingerprint: in its checkpoint or, if the schema came from a file, in its specification.
Guarantee: a schema is kept once, however many commits name it, with all schemas that it refers to. Beyond a thousand
the oldest are deleted, except those that the newest checkpoints name: an audit of earlier commits may need the registry
then. Raises what py4j raises.
"""

from __future__ import annotations

import gzip
import json
import uuid
from collections.abc import Callable, Collection

from coordination.errors import Unavailable
from sink.decode.protobuf.files import descriptor_set, registered_set
from sink.decode.registry.client import RegisteredSchema
from sink.hudi.java_objects import HudiObjects

SCHEMAS = ".hoodie/.sink_schemas"
"""The directory, relative to the table's base path. A file is named by the schema's fingerprint and `SUFFIX`."""
SUFFIX = ".json.gz"
MOST_KEPT = 1_000


def document(schema: RegisteredSchema) -> bytes:
    """Returns a schema as gzipped JSON. `schemas` lists those that it refers to, then the schema itself, each with
    `references`: the position in `schemas` by the name that the text uses. Protobuf is kept compiled: a reader needs
    no compiler. Raises what `descriptor_set` raises.
    """
    positions: dict[RegisteredSchema, int] = {}
    schemas: list[dict[str, object]] = []

    def add(referred: RegisteredSchema) -> int:
        if referred not in positions:
            references = {name: add(reference) for name, reference in referred.references}
            positions[referred] = len(schemas)
            schemas.append({"kind": referred.kind, "text": referred.text, "references": references})
        return positions[referred]

    add(registered_set(str(schema.id), descriptor_set(schema)) if schema.kind == "PROTOBUF" else schema)
    # Without a time: the same schema gives the same bytes.
    return gzip.compress(json.dumps({"schemas": schemas}).encode(), mtime=0)


def names_kept(table: HudiObjects) -> frozenset[str]:
    """Returns the fingerprints of the schemas that the table has."""
    return frozenset(name.removesuffix(SUFFIX) for name in table.names(SCHEMAS) if name.endswith(SUFFIX))


def keep(table: HudiObjects, name: str, content: bytes) -> None:
    """Writes the document of a schema, whole or not at all, under its fingerprint. If another worker has written it
    first, its file stays. Raises Unavailable if the storage refuses.
    """
    storage, target = table.storage(), table.path(f"{SCHEMAS}/{name}{SUFFIX}")
    temporary = table.path(f"{SCHEMAS}/{name}.{uuid.uuid4().hex}")
    stream = storage.create(temporary, True)
    stream.write(bytearray(content))
    stream.close()
    if not storage.rename(temporary, target):
        storage.deleteFile(temporary)
        if not storage.exists(target):
            raise Unavailable(f"{target.toString()} cannot be written: the storage refuses to rename it")


def trim(table: HudiObjects, named: Callable[[], Collection[str]]) -> None:
    """Deletes the oldest files beyond `MOST_KEPT`, except those of the fingerprints that `named` returns. Calls it only
    if there is something to delete, for it reads checkpoints.
    """
    if len(table.names(SCHEMAS)) <= MOST_KEPT:
        return
    entries = [
        (int(entry.getModificationTime()), str(entry.getPath().getName()))
        for entry in table.storage().listDirectEntries(table.path(SCHEMAS))
    ]
    kept = named()
    unnamed = [name for _, name in sorted(entries) if name.partition(".")[0] not in kept]
    # Another worker may have deleted some since they were counted.
    for name in unnamed[: max(0, len(entries) - MOST_KEPT)]:
        table.storage().deleteFile(table.path(f"{SCHEMAS}/{name}"))
