"""The field and value types that every group of settings uses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationInfo

from sink.config.values import require_str

SINCE = "0.1"


class SettingGroup(BaseModel):
    """Settings of one subject. Immutable; only `Settings`, which inherits all groups, is ever created or printed."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        hide_input_in_errors=True,
        arbitrary_types_allowed=True,
    )


def setting(
    name: str, meaning: str, *, also: tuple[str, ...] = (), same_on_all_workers: bool = False, **field_options: Any
) -> Any:
    """Returns a field. `also` are further names for it. Workers of a sink cannot differ in one that is
    `same_on_all_workers`."""
    extra: dict[str, Any] = {"also": list(also), "same_on_all_workers": same_on_all_workers, "since": SINCE}
    return Field(alias=name, description=meaning, json_schema_extra=extra, **field_options)


def _file(read: Callable[[Path], object]) -> BeforeValidator:
    """Returns a validator of paths that `read` can read, relative to the configuration file."""

    def beside_the_configuration(value: Any, info: ValidationInfo) -> Any:
        if value is None:
            return None
        directory = (info.context or {}).get("directory", Path())
        path = Path(directory, require_str(value)).absolute()
        try:
            read(path)
        except UnicodeDecodeError:
            raise ValueError(f"names {path}, which is not UTF-8 text") from None
        except (OSError, ValueError):
            raise ValueError(f"names {path}, which cannot be read. Check the path and its permissions.") from None
        return path

    return BeforeValidator(beside_the_configuration)


Choice = BeforeValidator(lambda value: require_str(value).lower())
Capitals = BeforeValidator(lambda value: require_str(value).upper())
Secret = Annotated[SecretStr, BeforeValidator(require_str)]
TextFile = Annotated[Path | None, _file(lambda path: path.read_bytes().decode())]
BinaryFile = Annotated[Path | None, _file(Path.read_bytes)]
