"""Tries HDFS as a worker's Python does, for `sink validate`: in the nearest directory that is there already.

Guarantee: nothing is left, and no directory is made above the probe. Raises what the file system raises.
"""

from __future__ import annotations

from sink.config import Settings
from sink.storage.files import Storage, open_storage


def nearest(settings: Settings) -> Storage:
    """The table's directory, or the nearest above it that is there: where it would be made."""
    return open_storage(settings.base_path, settings.storage).nearest


def address_of(settings: Settings, storage: Storage) -> str:
    """A directory on the way to the table, as Hudi has it."""
    scheme, _, rest = settings.base_path.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}{storage.root}"


def probe_by_python(settings: Settings, probe_dir: str, content: bytes) -> None:
    storage = nearest(settings)
    path = f"{probe_dir}/probe"
    try:
        with storage.create(path) as stream:
            stream.write(content)
        with storage.files.open_input_stream(storage.locate(path)) as stream:
            if stream.read() != content:
                raise OSError("what was written is not what is read")
    finally:
        if storage.exists(probe_dir):
            storage.files.delete_dir(storage.locate(probe_dir))
    if storage.exists(probe_dir):
        raise OSError(f"{probe_dir} was deleted and is still there")
