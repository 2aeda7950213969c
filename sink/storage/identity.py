"""Keys for S3 from the sources of the AWS tools: a profile, a process, a role, a web identity, a container, the host.

Guarantee: the keys are valid for some minutes, because expiring ones are renewed before; a file of profiles that
another program has written anew is read again. Python's libraries get their keys here; Java's library has a chain with
the same sources, and reads such a file every five minutes. Voided by `aws sso login`, which Java's library does not
know, and by a file whose keys have expired before they are replaced. Raises Unavailable if a configured source gives no
keys.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coordination.errors import Unavailable

_FILES: Mapping[str, str] = {
    "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials",
    "AWS_CONFIG_FILE": "~/.aws/config",
}
"""The variables that name the files of profiles, and the files without them."""


@dataclass(frozen=True, slots=True)
class Keys:
    access: str = field(repr=False)
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)


def process_keys() -> Keys | None:
    """Returns this process's keys for S3, or None: the store may need none, or a library finds them itself."""
    from botocore.exceptions import BotoCoreError

    try:
        source = _key_source(_profile_files())
        credentials = source.get_frozen_credentials() if source else None
    except BotoCoreError as error:
        raise Unavailable(f"storage.s3.access.key: the AWS settings of this host give no keys: {error}") from error
    return Keys(credentials.access_key, credentials.secret_key, credentials.token or "") if credentials else None


@functools.lru_cache(1)
def _key_source(_profiles: tuple[object, ...]) -> Any:
    """Looks for the source of the keys, once as long as the files of profiles stay. The source renews expiring keys."""
    from botocore.session import Session

    return Session().get_credentials()


def _profile_files() -> tuple[object, ...]:
    """Returns the files of profiles with what changes when somebody writes them."""
    files: list[object] = []
    for variable, default in _FILES.items():
        path = Path(os.environ.get(variable) or default).expanduser()
        files.append(path)
        with suppress(OSError):
            status = path.stat()
            files.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(files)


def for_java(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment variable by which Amazon's Java library finds the file of profiles."""
    file = environment.get("AWS_SHARED_CREDENTIALS_FILE", "")
    variable = "AWS_CREDENTIAL_PROFILES_FILE"
    return {variable: file} if file and variable not in environment else {}
