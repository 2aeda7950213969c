"""Keys for S3 from the sources of the AWS tools: a profile, a process, a role, a web identity, a container, the host.

Guarantee: the keys are valid for some minutes, because expiring ones are renewed before. Python's libraries get their
keys here; Java's library has a chain with the same sources. Voided by `aws sso login`, which Java's library does not
know. Raises Unavailable if a configured source gives no keys.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from coordination.errors import Unavailable


@dataclass(frozen=True, slots=True)
class Keys:
    access: str = field(repr=False)
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)


def process_keys() -> Keys | None:
    """Returns this process's keys for S3, or None: the store may need none, or a library finds them itself."""
    from botocore.exceptions import BotoCoreError

    try:
        source = key_source()
        credentials = source.get_frozen_credentials() if source else None
    except BotoCoreError as error:
        raise Unavailable(f"storage.s3.access.key: the AWS settings of this host give no keys: {error}") from error
    return Keys(credentials.access_key, credentials.secret_key, credentials.token or "") if credentials else None


@functools.cache
def key_source() -> Any:
    """Looks for the source of the keys, once. It renews expiring keys."""
    from botocore.session import Session

    return Session().get_credentials()


def for_java(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment variable by which Amazon's Java library finds the file of profiles."""
    file = environment.get("AWS_SHARED_CREDENTIALS_FILE", "")
    variable = "AWS_CREDENTIAL_PROFILES_FILE"
    return {variable: file} if file and variable not in environment else {}
