"""Configuration files and the environment as one flat list of `(key, value, origin)`, secrets resolved.

YAML (nested or dotted keys) and Java `.properties` give the same entries. Values stay text: no type is guessed, so
`0123`, `10:30` or `no` mean what was written. Unreadable content is a `Problem` with its origin; nothing here raises on
content, whatever the bytes are.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import javaproperties
import yaml

ENVIRONMENT_PREFIX = "SINK_"
PASS_THROUGH = ("kafka", "spark", "hoodie")
"""Prefixes of settings that are passed through."""
SUFFIXES = (".yaml", ".yml", ".properties")
LARGEST_FILE = 4 * 1024 * 1024
DEEPEST = 20
SINKS = "sinks"
"""The key that holds the sinks of a fleet, each with its own settings."""
MOST_ENTRIES = 20_000
MOST_CHARACTERS = LARGEST_FILE
"""Characters of all keys and values of a file, and one for each item of a list: aliases repeat values and lists, and
nested settings the keys around them."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_REFERENCE = re.compile(r"\$\{(env|file):([^}]*)\}")


@dataclass(frozen=True, slots=True)
class Problem:
    """One sentence for a person; `origin` says where."""

    origin: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.origin}: {self.sentence}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One setting as written. `is_secret`: it came from a secret reference, so its value is never shown. `variable`: it
    came from an environment variable. `sink`: the sink that it stands beneath, in `sinks`."""

    key: str
    value: str | tuple[str, ...]
    origin: str
    is_secret: bool = False
    variable: bool = False
    sink: str | None = None

    @property
    def values(self) -> tuple[str, ...]:
        return self.value if isinstance(self.value, tuple) else (self.value,)

    @property
    def text(self) -> str:
        return ",".join(self.values)


ReadResult = Entry | Problem


class _Unfolded(Exception):
    """A file unfolds to more than `MOST_CHARACTERS`."""


class _Source:
    """The file of a configuration, and how many characters it has unfolded to so far."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._left = MOST_CHARACTERS

    def line(self, node: yaml.Node) -> str:
        return _line(self._path, node.start_mark.line + 1)

    def count(self, characters: int) -> None:
        """Counts characters before they are copied. Raises _Unfolded."""
        self._left -= characters
        if self._left < 0:
            raise _Unfolded


def read_file(path: Path) -> Iterator[ReadResult]:
    """Yields entries and problems of a configuration file, in its order."""
    if path.suffix.lower() not in SUFFIXES:
        yield Problem(str(path), "a configuration file ends in .yaml, .yml or .properties. Rename it.")
        return
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        yield Problem(str(path), "there is no such file. Give the path of a configuration with --config.")
        return
    except (OSError, ValueError) as error:
        yield Problem(str(path), f"cannot be read ({_reason(error)}). Check the path and its permissions.")
        return
    yield from parse(data, path)


def parse(data: bytes, path: Path) -> Iterator[ReadResult]:
    """Parses bytes as `read_file` does; `path` chooses the format and names the origin."""
    if len(data) > LARGEST_FILE:
        yield Problem(str(path), f"is larger than {LARGEST_FILE // 1024**2} MiB, which no configuration is")
        return
    try:
        content = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        yield Problem(str(path), f"is not UTF-8 text (byte {error.start}). Save it as UTF-8.")
        return
    results = _properties(content, path) if path.suffix.lower() == ".properties" else _yaml(content, path)
    origins: dict[tuple[str | None, str], str] = {}
    for result in map(_beneath_its_sink, results):
        if isinstance(result, Entry):
            if not result.key.isprintable() or any(_SURROGATE.search(value) for value in result.values):
                yield Problem(result.origin, "holds characters that cannot be printed")
                continue
            qualified_key = result.sink, result.key
            if qualified_key in origins:
                yield Problem(
                    result.origin, f"{result.key} was already set at {origins[qualified_key]}. Keep one of them."
                )
                continue
            origins[qualified_key] = result.origin
            if len(origins) > MOST_ENTRIES:
                yield Problem(str(path), f"has more than {MOST_ENTRIES} settings. Is it a configuration at all?")
                return
        yield result


def _beneath_its_sink(result: ReadResult) -> ReadResult:
    """Turns `sinks.NAME.key` of a properties file into that sink's entry `key`."""
    if not isinstance(result, Entry) or result.sink is not None or not result.key.startswith(f"{SINKS}."):
        return result
    name, _, key = result.key.removeprefix(f"{SINKS}.").partition(".")
    if not name or not key:
        return Problem(
            result.origin, f"{result.key} is not a setting of a sink. Write it like {SINKS}.NAME.flush.size."
        )
    return replace(result, key=key, sink=name, origin=of_sink(result.origin, name))


def of_sink(origin: str, name: str) -> str:
    return f"{origin} (sink {name})"


def _properties(content: str, path: Path) -> Iterator[ReadResult]:
    line = 1
    try:
        for element in javaproperties.parse(io.StringIO(content)):
            if isinstance(element, javaproperties.KeyValue):
                yield Entry(element.key, element.value, _line(path, line))
            line += len(re.findall(r"\r\n|\r|\n", element.source))
    except ValueError as error:
        yield Problem(_line(path, line), f"is not a valid line of a properties file ({_reason(error)})")


def _yaml(content: str, path: Path) -> Iterator[ReadResult]:
    try:
        root = yaml.compose(content, Loader=yaml.SafeLoader)
        if root is None or (isinstance(root, yaml.ScalarNode) and root.tag == _NULL):
            return
        if not isinstance(root, yaml.MappingNode):
            yield Problem(str(path), "is not a mapping of settings. Write lines of the form `name: value`.")
            return
        # Aliases can make a small file expand without end.
        entries = list(islice(_flatten_fleet(root, _Source(path)), MOST_ENTRIES + 1))
    except _Unfolded:
        yield Problem(
            str(path),
            f"unfolds to more than {MOST_CHARACTERS // 1024**2} MiB of keys and values, which no configuration does."
            " Use fewer aliases and shorter keys.",
        )
        return
    except RecursionError:
        yield Problem(str(path), "is nested too deeply. Settings need no more than a few levels.")
        return
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        origin = _line(path, mark.line + 1) if mark else str(path)
        yield Problem(origin, f"is not valid YAML ({_safe_yaml_reason(error)}). Check indentation and quotes.")
        return
    except yaml.YAMLError:
        yield Problem(str(path), "is not valid YAML: it holds characters that YAML does not allow")
        return
    except (ValueError, OverflowError):
        yield Problem(str(path), "is not valid YAML: it holds an escape that is not a character")
        return
    yield from entries


_NULL = "tag:yaml.org,2002:null"
_GRAMMAR_TOKEN = re.compile(r"\\?.|<[a-z ]+>")
_PLAIN = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "timestamp", "value"))


def _flatten_fleet(root: yaml.MappingNode, source: _Source) -> Iterator[ReadResult]:
    """Yields results as `_flatten` does. Names of sinks stay as written and may contain dots."""
    for pair in root.value:
        key_node, value = pair
        is_sinks = isinstance(key_node, yaml.ScalarNode) and key_node.value.strip() == SINKS
        if not is_sinks or not isinstance(value, yaml.MappingNode) or not value.value:
            yield from _flatten(yaml.MappingNode(root.tag, [pair], root.start_mark), "", source, 0)
            continue
        for name_node, settings_node in value.value:
            origin = source.line(name_node)
            if not isinstance(name_node, yaml.ScalarNode) or not name_node.value.strip():
                yield Problem(origin, f"{SINKS} has a key that is not a name")
            elif not isinstance(settings_node, yaml.MappingNode) or not settings_node.value:
                yield Problem(
                    origin, f"{SINKS}: {name_node.value} holds no settings. Say what is its own, or remove it."
                )
            else:
                name = name_node.value.strip()
                for result in _flatten(settings_node, "", source, 1):
                    source.count(len(name))
                    sink_origin = of_sink(result.origin, name)
                    if isinstance(result, Entry):
                        yield replace(result, origin=sink_origin, sink=name)
                    else:
                        yield replace(result, origin=sink_origin)


def _flatten(node: yaml.MappingNode, prefix: str, source: _Source, depth: int) -> Iterator[ReadResult]:
    if depth > DEEPEST:
        yield Problem(source.line(node), "is nested too deeply (or an alias holds itself)")
        return
    for key_node, value in node.value:
        origin = source.line(key_node)
        if not isinstance(key_node, yaml.ScalarNode) or not key_node.value.strip():
            yield Problem(origin, "has a key that is not a name")
            continue
        source.count(len(prefix) + len(key_node.value) + _length(value))
        key = f"{prefix}{key_node.value.strip()}"
        if (placeholder := _placeholder(value)) is not None:
            yield Entry(key, placeholder, origin)
        elif isinstance(value, yaml.MappingNode) and not value.value:
            yield Problem(origin, f"{key} holds no settings. Remove it.")
        elif isinstance(value, yaml.MappingNode):
            yield from _flatten(value, f"{key}.", source, depth + 1)
        elif isinstance(value, yaml.SequenceNode):
            if all(_is_plain(item) for item in value.value):
                yield Entry(key, tuple(item.value for item in value.value), origin)
            else:
                yield Problem(origin, f"{key} is a list of something else than plain values")
        elif value.tag == _NULL:
            yield Entry(key, "", origin)
        elif _is_plain(value):
            yield Entry(key, value.value, origin)
        else:
            yield Problem(origin, f"{key} has the tag {value.tag[:60]!r}. Write the plain value.")


def _length(value: yaml.Node) -> int:
    """Returns how many characters an entry repeats: those of a scalar, a list or a placeholder."""
    if isinstance(value, yaml.SequenceNode):
        return sum(1 + (len(item.value) if isinstance(item, yaml.ScalarNode) else 0) for item in value.value)
    if isinstance(value, yaml.ScalarNode):
        return len(value.value)
    return sum(len(name.value) for name, _ in value.value[:1] if isinstance(name, yaml.ScalarNode))


def _placeholder(node: yaml.Node) -> str | None:
    """Restores `{topic}` without quotes, which YAML reads as a mapping of one key without a value."""
    if not isinstance(node, yaml.MappingNode) or not node.flow_style or len(node.value) != 1:
        return None
    name, value = node.value[0]
    if not isinstance(name, yaml.ScalarNode) or value.tag != _NULL or value.value:
        return None
    return f"{{{name.value}}}"


def _is_plain(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag in _PLAIN


def _safe_yaml_reason(error: yaml.MarkedYAMLError) -> str:
    """Returns the parser's reason, without the text of the file that it quotes, which may be a secret. A single
    character and a name of the parser's, like `<stream end>`, stay.
    """

    def kept(quoted: re.Match[str]) -> str:
        return quoted[0] if _GRAMMAR_TOKEN.fullmatch(quoted[0][1:-1]) else "..."

    return re.sub(r"'[^']*'|\"[^\"]*\"", kept, error.problem or error.context or "unreadable")


def read_environment(
    environ: Mapping[str, str], setting_names: Mapping[str, str], present: set[str]
) -> Iterator[Entry]:
    """Yields overrides: `SINK_` and the setting in upper case, dots as underscores. An empty variable counts as
    unset.

    `setting_names` maps a variable's name without prefix to the setting it stands for. Pass-through names
    (`SINK_KAFKA_...`, `SINK_SPARK_...`, `SINK_HOODIE_...`) match a key of the file first (`present`); else
    `_` becomes a dot and `__` an underscore, in lower case unless the variable itself has lower-case letters.
    """
    file_keys = {variable_name(key): key for key in sorted(present)}
    for variable in sorted(environ):
        suffix = variable.removeprefix(ENVIRONMENT_PREFIX)
        if suffix == variable or not environ[variable]:
            continue
        key = setting_names.get(suffix) or file_keys.get(suffix) or _pass_through_key(suffix)
        yield Entry(key or variable, environ[variable], f"environment variable {variable}", variable=True)


def variable_name(key: str) -> str:
    """Returns the environment variable of a setting, without the prefix."""
    return re.sub(r"[.-]", "_", key).upper()


def _pass_through_key(suffix: str) -> str | None:
    prefix, _, name = suffix.partition("_")
    if prefix.lower() not in PASS_THROUGH or not name:
        return None
    name = name if any(c.islower() for c in name) else name.lower()
    return f"{prefix.lower()}.{re.sub(r'_(_?)', lambda m: '_' if m[1] else '.', name)}"


def resolve(entry: Entry, environ: Mapping[str, str], directory: Path) -> ReadResult:
    """Returns `entry` with `${env:NAME}`, `${file:/path}` and `${file:/path:key}` replaced by their values."""
    resolved: list[str] = []
    is_secret = entry.is_secret
    for value in entry.values:
        parts: list[str] = []
        end = 0
        for match in _REFERENCE.finditer(value):
            replacement = _look_up(match[1], match[2].strip(), environ, directory)
            if isinstance(replacement, Problem):
                return Problem(entry.origin, f"{entry.key} refers to {match[0]}, {replacement.sentence}")
            parts += [value[end : match.start()], replacement]
            end, is_secret = match.end(), True
        resolved.append("".join([*parts, value[end:]]))
    return replace(entry, value=tuple(resolved) if isinstance(entry.value, tuple) else resolved[0], is_secret=is_secret)


def referred_files(value: str, directory: Path) -> Iterator[Path]:
    """Yields the files to which a value refers."""
    for provider, argument in _REFERENCE.findall(value):
        if provider == "file":
            yield _referred_file(argument.strip(), directory)


def _referred_file(argument: str, directory: Path) -> Path:
    location, colon, _ = argument.rpartition(":")
    return directory / (location if colon else argument)


def _look_up(provider: str, argument: str, environ: Mapping[str, str], directory: Path) -> str | Problem:
    if provider == "env":
        value = environ.get(argument)
        return value if value else Problem("", "but that environment variable is not set. Set it for this process.")
    path = _referred_file(argument, directory)
    _, colon, key = argument.rpartition(":")
    try:
        content = path.read_bytes().decode("utf-8-sig")
    except (OSError, ValueError) as error:
        return Problem("", f"but that file cannot be read ({_reason(error)})")
    if not colon:
        return content.rstrip("\r\n")
    try:
        value_of_key = javaproperties.loads(content).get(key)
    except ValueError:
        return Problem("", "but that file is not a properties file")
    return value_of_key if value_of_key else Problem("", f"but that file has no value for {key!r}")


def _line(path: Path, line: int) -> str:
    return f"{path}, line {line}"


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8 text"
    return (error.strerror or type(error).__name__) if isinstance(error, OSError) else str(error).split("\n")[0][:100]
