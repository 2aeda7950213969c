"""The names of settings that Hudi 1.2 reads, each refused, checked or harmless, from `hudi_keys.tsv`.

Guarantee: a name that is refused reaches no write, nor does a value that a checked name may not have: each module that
makes options of Hudi takes the user's settings through `accepted`. What nobody has tried with the sink is refused. A
test compares the file with Hudi's own classes, and another writes tables with every value in its column `tried`.
Raises ConfigError. No I/O after the import.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files

from coordination.errors import ConfigError
from sink.config.values import flag

INT_MAX = 2**31 - 1
"""The largest number of most of Hudi's settings, and the upper bound where the file names none."""
_FORMS: Mapping[str, tuple[re.Pattern[str], str]] = {
    "znode": (re.compile(r"(/[^/\s]+)+/?"), "is not a znode path. Write it like /hudi."),
    "properties": (
        re.compile(r"(?is)(?!.*(external|purge)).*"),
        "has a property with which dropping the table in the catalogue would delete its files. Remove that.",
    ),
    "name": (re.compile(r"[^/\s]+"), "is not a name without slashes and spaces. Write it like orders."),
}
_SETTING = "setting "


@dataclass(frozen=True, slots=True)
class HudiKey:
    """One name and what the sink does with it.

    `values`: what a checked name may be: `flag`, `A|B`, `1..`, `1..10`, `0.1..0.5`, `znode`, `name`, `properties`, or
    `setting X`, the sink's own setting that stands for it; of a refused name the value that the sink itself uses, if it
    may be written down. Empty: any text; for a refused name none.
    `tried`: the value that a test writes tables with.
    """

    name: str
    kind: str
    values: str
    tried: str
    reason: str

    @property
    def sentence(self) -> str:
        """Says what the name would break, or what it decides."""
        return REASONS[self.reason]

    def problem(self, value: str) -> str | None:
        """Returns what is wrong with this value, as a sentence with its remedy; None if nothing is."""
        if self.values.startswith(_SETTING):
            return f"{self.name} is the setting {self.values.removeprefix(_SETTING)}. Set that."
        if self.kind == "refused":
            allowed = self.values.split("|") if self.values else []
            if value.strip().lower() in map(str.lower, allowed):
                return None
            remedy = f"Remove it or set it to {' or '.join(allowed)}." if allowed else "Remove it."
            return f"{self.name} is refused: {self.sentence}. {remedy}"
        try:
            self.canonical(value)
        except ValueError as error:
            return f"{self.name} {error}"
        return None

    def canonical(self, value: str) -> str:
        """Returns the value in the form that Hudi and the sink understand. Raises ValueError if there is none."""
        text = value.strip()
        if not self.values:
            return value
        if self.values == "flag":
            return str(flag(value)).lower()
        if self.values in _FORMS:
            form, problem = _FORMS[self.values]
            if not form.fullmatch(text):
                raise ValueError(problem)
            return text
        if ".." in self.values:
            self._require_number(text)
            return text
        for choice in self.values.split("|"):
            if text.lower() == choice.lower():
                return choice
        raise ValueError(f"is not one of its values. Use {', '.join(self.values.split('|'))}.")

    def _require_number(self, text: str) -> None:
        low, _, high = self.values.partition("..")
        if "." in f"{low}{high}":
            is_valid = re.fullmatch(r"\d+(\.\d+)?", text) and float(low) <= float(text) <= float(high)
            kind = "a number"
        else:
            is_valid = text.isascii() and text.isdecimal() and int(low) <= int(text) <= int(high or INT_MAX)
            kind = "a whole number"
        if not is_valid:
            raise ValueError(f"is not {kind} from {low} {f'to {high}' if high else 'on'}")


def _rows(file: str) -> list[list[str]]:
    text = files("sink.config").joinpath(file).read_text("utf-8")
    return list(csv.reader(text.splitlines()[1:], delimiter="\t", quoting=csv.QUOTE_NONE))


REASONS: Mapping[str, str] = dict(_rows("hudi_reasons.tsv"))
"""The sentences that the file's column `reason` stands for."""
KEYS: Mapping[str, HudiKey] = {row[0]: HudiKey(*row) for row in _rows("hudi_keys.tsv")}
"""Every name that Hudi reads, old names of the same settings included; all that begin alike where one ends in `*`."""
_STARTS = tuple(name.removesuffix("*") for name in KEYS if name.endswith("*"))


def find(key: str) -> HudiKey | None:
    """Returns what the list says of a name; None if it does not have it."""
    return KEYS.get(key) or next((KEYS[f"{start}*"] for start in _STARTS if key.startswith(start)), None)


def problem(key: str, value: str) -> str | None:
    """Returns why a setting may not be passed on to Hudi; None if it may, also where Hudi does not know it."""
    known = find(key)
    return known.problem(value) if known else None


def canonical(key: str, value: str) -> str:
    """Returns the value as Hudi understands it. Raises ValueError if it is not one of the name's values."""
    known = find(key)
    return known.canonical(value) if known else value


def notes(settings: Mapping[str, str]) -> Iterator[str]:
    """Yields a sentence for each name that Hudi does not know: another jar may read it, and Hudi ignores it."""
    for name in sorted(settings):
        if find(name) is None:
            yield (
                f"{name}: Hudi's own jar does not know this setting, and it is passed on. Remove it, unless another jar"
                " (spark.jars) reads it."
            )


def accepted(settings: Mapping[str, str]) -> Mapping[str, str]:
    """Returns the user's settings of Hudi, for the options of a writer or a service. Raises ConfigError for the first
    one that is refused, however it came here.
    """
    for key, value in settings.items():
        if sentence := problem(key, value):
            raise ConfigError(sentence)
    return settings
