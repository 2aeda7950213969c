"""The meaning of values where neither their type nor their message says it. Without a setting such a value is bad."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from sink.config.fields import Choice, SettingGroup, setting
from sink.config.values import items

ByColumn = tuple[tuple[str, str], ...]
"""Values by the path of a column; that of the empty path is for all others."""


def by_column(choices: Sequence[str]) -> Callable[[Any], ByColumn]:
    """Returns a parser of one value for all columns, and of others for one column each: `ms, order.placed=us`."""

    def parse(value: Any) -> ByColumn:
        if value == ():
            return ()
        pairs = [(column, choice) for column, choice in value] if _are_pairs(value) else [*map(_pair, items(value))]
        for _, choice in pairs:
            if choice not in choices:
                raise ValueError(f"names {choice!r}. Use one of {', '.join(choices)}, or column=value.")
        if len({column for column, _ in pairs}) != len(pairs):
            raise ValueError("names a column twice, or two values for all columns. Keep one.")
        return tuple(sorted(pairs))

    return parse


FieldPath = tuple[str, ...]
_BARE = r"[^`.,=\s]+"
_STEP = rf"`((?:[^`]|``)+)`|({_BARE})"
_FIELD = re.compile(rf"\s*([^`,=\s]+)\s*=\s*((?:{_STEP})(?:\.(?:{_STEP}))*)\s*(?:,|\Z)")


def _field_names(value: Any) -> tuple[tuple[str, FieldPath], ...]:
    """Parses `ts=@timestamp, message=metadata.msgID`; a name in backticks may have any sign."""
    if not isinstance(value, str):
        return tuple(value)
    pairs: list[tuple[str, FieldPath]] = []
    position = 0
    while position < len(value):
        match = _FIELD.match(value, position)
        if match is None:
            raise ValueError(
                f"cannot be read at {value[position:].strip()!r}: write column=field, inner ones by their path"
            )
        steps = (quoted.replace("``", "`") or bare for quoted, bare in re.findall(_STEP, match[2]))
        pairs.append((match[1], tuple(steps)))
        position = match.end()
    if len(dict(pairs)) < len(pairs):
        raise ValueError("names a column twice. Keep one.")
    return tuple(sorted(pairs))


def written_path(path: FieldPath) -> str:
    """Returns the path of a field as `field.names` has it."""
    return ".".join(name if re.fullmatch(_BARE, name) else f"`{name.replace('`', '``')}`" for name in path)


def _are_pairs(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and all(isinstance(item, (tuple, list)) for item in value)


def _pair(item: str) -> tuple[str, str]:
    column, _, choice = item.rpartition("=")
    return column.strip(), choice.strip().lower()


_DATES = ("days", "s", "ms", "us", "ns")
_FOR_ONE = "A column may have its own, an inner one by its path:"


class MeaningSettings(SettingGroup):
    time_unit: Annotated[ByColumn, BeforeValidator(by_column(_DATES[1:]))] = setting(
        "time.unit",
        "What a number in a TIMESTAMP, and any BIGINT or INT in `partition.time.field`, counts since 1970: `s`,"
        f" `ms`, `us` or `ns`. {_FOR_ONE} `ms, order.placed=us`.",
        default=(),
        same_on_all_workers=True,
    )
    date_unit: Annotated[ByColumn, BeforeValidator(by_column(_DATES))] = setting(
        "date.unit",
        f"What a number in a DATE counts since 1970: `days`, `s`, `ms`, `us` or `ns`. {_FOR_ONE} `days, born=ms`."
        " Of a unit of time the column gets the day in UTC.",
        default=(),
        same_on_all_workers=True,
    )
    time_infinity: Annotated[Literal["bad", "null", "bound"], Choice] = setting(
        "time.infinity",
        "What Postgres' `infinity` and `-infinity` are in a TIMESTAMP or DATE, as texts or as Debezium's numbers of"
        " microseconds: `bad` records, `null`, or the `bound`: the last or first moment of the years 0001 to 9999.",
        default="bad",
        same_on_all_workers=True,
    )
    decimal_format: Annotated[ByColumn, BeforeValidator(by_column(("numeric", "base64")))] = setting(
        "decimal.format",
        "What a text in a DECIMAL is: `numeric`, digits; or `base64`, the number without its point, which Debezium"
        f" writes by default: the column has to have the scale of the source. {_FOR_ONE} `base64, rate=numeric`.",
        default=(),
        same_on_all_workers=True,
    )
    decimal_rounding: Annotated[Literal["none", "half_up"], Choice] = setting(
        "decimal.rounding",
        "`half_up`: a number with more digits behind the point than its DECIMAL is rounded. `none`: it is bad.",
        default="none",
        same_on_all_workers=True,
    )
    field_names: Annotated[tuple[tuple[str, FieldPath], ...], BeforeValidator(_field_names)] = setting(
        "field.names",
        "Columns that have another name than their field: `ts=@timestamp, message=metadata.msgID`, with names in"
        " backticks where they have dots, commas or blanks. A column in a struct has its path, and lies within the"
        " struct's field. Default: each column has the name of its field.",
        default=(),
        same_on_all_workers=True,
    )
    field_case: Annotated[Literal["any", "exact"], Choice] = setting(
        "field.case",
        "`any`: a column without a field of its name takes the only one that differs in case. `exact`: it is null.",
        default="any",
        same_on_all_workers=True,
    )
