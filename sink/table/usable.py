"""Whether a table could be made, and an engine write it, as the settings ask for.

The one list of such conditions: a worker refuses by it before it asks any server, an engine and a new table do, and
`sink validate` tells all of it at once. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterator

from coordination.errors import ConfigError, SinkError, TableError
from sink.config import Settings
from sink.schema import TableSchema
from sink.table.options import populate_meta_fields, record_key_fields
from sink.write.partition_paths import PARTITION_TYPES
from sink.write.record_keys import KEY_TYPES
from sink.write.storage import require_reachable


def require_usable(settings: Settings, schema: TableSchema, engine: str = "") -> None:
    """Raises the first of what is wrong: ConfigError or TableError. `engine`: another one than the settings'."""
    for wrong in unusable(settings, schema, engine):
        raise wrong


def unusable(settings: Settings, schema: TableSchema, engine: str = "") -> Iterator[SinkError]:
    """Everything that is wrong."""
    engine = engine or settings.engine
    if not record_key_fields(settings) and engine == "hudi":
        yield ConfigError(
            "write.engine=hudi makes record keys from columns of the table: set record.key.fields, or"
            " provenance.columns=true, or write.engine=arrow"
        )
    elif not record_key_fields(settings) and not populate_meta_fields(settings):
        yield TableError(
            "hoodie.populate.meta.fields=false with provenance.columns=false leaves rows without a key: set"
            " record.key.fields, or one of the two to true"
        )
    for setting, names, allowed in (
        ("record.key.fields", settings.record_key_fields, KEY_TYPES),
        ("partition.field.name", settings.partition_fields, PARTITION_TYPES),
    ):
        for name in names:
            try:
                schema.require([name], setting, allowed)
            except ConfigError as error:
                yield error
    if engine == "arrow":
        try:
            require_reachable(settings.base_path)
        except ConfigError as error:
            yield error
