"""Decides which settings hold secrets, and hides them in everything that is printed.

It hides too much rather than too little: any key that sounds like a credential, credentials inside a URL or a
`password=...` inside a longer text, and every secret that was registered with a `Redactor`. It cannot detect a secret
under an innocent name that never passed through the settings. Raises nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

HIDDEN = "******"
SHORTEST_LITERAL = 4
"""A shorter secret is hidden only under its key. A search for it would blank out ordinary words."""

_WORDS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_CONTAINED = (
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "credential",
    "jaas",
    "apikey",
    "accesskey",
)
_FULL_WORDS = frozenset({"key", "keys", "auth", "userinfo", "sas", "pwd"})
_HARMLESS = re.compile(
    r"(^|\.)(record[._-]?keys?|recordkey|lock[._]key|key[._]?(de)?serializer|key\.(converter|format)|keygenerator)\b",
    re.IGNORECASE,
)
# No expression below starts again within what it has passed, so that the time is proportional to the text.
_URL_USERINFO = re.compile(r"://[^\s/?#\"']+@")
_AUTHORIZATION = re.compile(r"(?<=authorization)([\"']?\s?[:=]\s?[\"']?(?:basic|bearer)\s)[^\s\"',;]+", re.IGNORECASE)
_ASSIGNED = re.compile(
    r"(?<![\w.-])(?P<name>(?=[\w.-]*?(?:password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|signature|"
    r"user[._-]?info|pwd))"
    r"[\w.-]+)(?P<gap>[\"']?\s*[=:]\s*)(?P<value>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s,;&\"']+)",
    re.IGNORECASE,
)
_PEM = re.compile(r"-----BEGIN [^-]*PRIVATE KEY-----.*?(-----END [^-]*PRIVATE KEY-----|\Z)", re.DOTALL)


def looks_secret(key: str) -> bool:
    """Whether the value of a setting of this name must not be shown."""
    lowered = key.lower()
    if any(word in lowered for word in _CONTAINED):
        return True
    if _HARMLESS.search(lowered):
        return False
    return any(word.lower() in _FULL_WORDS for word in _WORDS.findall(key))


def redact_text(text: str) -> str:
    """Returns `text` without URL credentials, assigned passwords and private keys."""
    text = _PEM.sub(HIDDEN, text)
    text = _URL_USERINFO.sub(f"://{HIDDEN}@", text)
    text = _AUTHORIZATION.sub(rf"\g<1>{HIDDEN}", text)
    return _ASSIGNED.sub(rf"\g<name>\g<gap>{HIDDEN}", text)


def redacted_value(key: str, value: str) -> str:
    """Returns the value of setting `key` without secrets."""
    return HIDDEN if looks_secret(key) else redact_text(value)


class Redactor:
    """Hides registered secrets, and all that `redact_text` hides; also in nested log values."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: frozenset[str] = frozenset()
        self._literals: re.Pattern[str] | None = None
        self.hide(secrets)

    def hide(self, secrets: Iterable[str]) -> None:
        """Registers more secrets. Any thread may call it."""
        new_secrets = {secret for secret in secrets if len(secret) >= SHORTEST_LITERAL} - self._secrets
        if new_secrets:
            self._secrets |= new_secrets
            longest_first = sorted(self._secrets, key=len, reverse=True)
            self._literals = re.compile("|".join(map(re.escape, longest_first)))

    def text(self, text: str) -> str:
        if (literals := self._literals) is not None:
            text = literals.sub(HIDDEN, text)
        return redact_text(text)

    def value(self, key: str, value: Any) -> Any:
        """Returns `value` without secrets, to be logged under `key`. Anything but plain data becomes text."""
        if isinstance(value, (bool, int, float)) or value is None:
            return HIDDEN if looks_secret(key) and value is not None and not isinstance(value, bool) else value
        if isinstance(value, Mapping):
            return {self.text(str(k)): self.value(str(k), v) for k, v in value.items()}
        if looks_secret(key):
            return HIDDEN
        if isinstance(value, (list, tuple, set, frozenset)):
            return [self.value(key, item) for item in value]
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        return self.text(value if isinstance(value, str) else str(value))


class Properties(Mapping[str, str]):
    """An immutable mapping of pass-through settings that never shows its secrets when printed."""

    __slots__ = ("_items", "_secret_keys")

    def __init__(self, items: Mapping[str, str] | None = None, secret_keys: Iterable[str] = ()) -> None:
        self._items = dict(items or {})
        self._secret_keys = frozenset(secret_keys)

    def __getitem__(self, key: str) -> str:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return repr(self.redacted())

    def is_secret(self, key: str) -> bool:
        """Whether `key` sounds secret or its value came from a secret reference."""
        return key in self._secret_keys or looks_secret(key)

    def redacted(self) -> dict[str, str]:
        return {k: HIDDEN if self.is_secret(k) else redact_text(v) for k, v in sorted(self._items.items())}

    def secrets(self) -> tuple[str, ...]:
        return tuple(v for k, v in self._items.items() if self.is_secret(k))
