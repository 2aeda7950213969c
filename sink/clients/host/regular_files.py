"""Opens files in directories that another user may write, as root's commands do in those of the worker's user.

Guarantee: a regular file of that directory is opened. A link, a pipe or a device, which would lead root elsewhere or
hold it up, is refused; a directory that is a link, too, unless root or this process's user made the link. Directories
above it void this, and hard links where the kernel does not refuse them (`fs.protected_hardlinks`). Raises OSError with
the reason as `strerror`.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from sink.clients.host.trusted_files import ROOT


def open_regular(path: Path, flags: int, mode: int = 0o600) -> int:
    """Opens as `os.open` does, and returns the descriptor. `mode` is that of a new file."""
    directory = _open_directory(path.parent)
    try:
        # Without waiting for the other end of a pipe.
        descriptor = os.open(path.name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, mode, dir_fd=directory)
    except OSError as error:
        refused = {errno.ELOOP: "it is a link", errno.ENXIO: "it is not a regular file"}
        raise OSError(error.errno, refused.get(error.errno or 0, error.strerror), str(path)) from None
    finally:
        os.close(directory)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return descriptor


def _open_directory(path: Path) -> int:
    try:
        return os.open(path, os.O_DIRECTORY | os.O_NOFOLLOW)
    except NotADirectoryError:
        if not path.is_symlink():
            raise
    if path.lstat().st_uid not in (ROOT, os.getuid()):
        raise OSError(errno.ELOOP, "its directory is a link of another user's", str(path))
    return os.open(path, os.O_DIRECTORY)
