"""Tries HDFS with a worker's Python client, for `sink validate`: in the nearest directory that exists.

Guarantee: it leaves no file, and creates no directory above its own. Raises the errors of the file system.
"""

from __future__ import annotations

from sink.config import Settings
from sink.storage.files import Storage, open_storage


def nearest(settings: Settings) -> Storage:
    """Returns the table's directory, or the nearest one above it that exists."""
    return open_storage(settings.base_path, settings.storage).nearest


def address_of(settings: Settings, storage: Storage) -> str:
    """Returns Hudi's address of the root of `storage`."""
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
                raise OSError("reading the probe gives other bytes than were written")
    finally:
        if storage.exists(probe_dir):
            storage.files.delete_dir(storage.locate(probe_dir))
    if storage.exists(probe_dir):
        raise OSError(f"{probe_dir} still exists after it was deleted")
