"""Keys for S3 from where the AWS tools have them: a profile, a process, a role, a web identity, a container, the host.

Guarantee: whoever asks gets keys that are good for minutes: those that expire are renewed before. Python's libraries
get them from here; Java's have a chain of their own with the same sources. Voided by `aws sso login`, which Java's does
not know. Raises Unavailable where a source is named and gives nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from coordination.errors import Unavailable


@dataclass(frozen=True, slots=True)
class Keys:
    access: str = field(repr=False)
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)


class Identity:
    """This process's keys for S3. Asks their source when it is first asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked = False
        self._source: Any = None

    def keys(self) -> Keys | None:
        """Returns the process's keys, or None: the store may need none, or a library finds its own."""
        from botocore.exceptions import BotoCoreError

        try:
            with self._lock:
                if not self._asked:
                    self._source, self._asked = _source(), True
                credentials = self._source.get_frozen_credentials() if self._source else None
        except BotoCoreError as error:
            raise Unavailable(f"storage.s3.access.key: the AWS settings of this host give no keys: {error}") from error
        return Keys(credentials.access_key, credentials.secret_key, credentials.token or "") if credentials else None


def _source() -> Any:
    from botocore.session import Session

    return Session().get_credentials()


def for_java(environment: Mapping[str, str]) -> dict[str, str]:
    """The file of profiles, by the variable that Amazon's library for Java knows."""
    file = environment.get("AWS_SHARED_CREDENTIALS_FILE", "")
    own = "AWS_CREDENTIAL_PROFILES_FILE"
    return {own: file} if file and own not in environment else {}


PROCESS_IDENTITY = Identity()
