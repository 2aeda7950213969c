"""Compares the sink's list of Hudi's settings with Hudi's own classes, and writes the page of the list.

`python -m sink.devtools.hudi_keys` prints `docs/hudi-settings.md`, from `sink.config.hudi_keys`. With `--compare` it
starts a JVM and prints each name that only the list or only Hudi's jar has: exit status 1 if there is one. A new Hudi
begins with that. Raises what py4j raises.
"""

from __future__ import annotations

import argparse
import re
import struct
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from sink.clients.java.installation import find_java, pyspark_jars, spark_jars
from sink.config.hudi_keys import INT_MAX, KEYS, REASONS, HudiKey

_PROPERTY = "org.apache.hudi.common.config.ConfigProperty"
_STATIC = 0x0008
_NAME = re.compile(rb"(hoodie|_hoodie|_\.hoodie)\.[A-Za-z0-9_.-]*[A-Za-z0-9]")
_CONSTANT_SIZES = {
    3: 5,
    4: 5,
    5: 9,
    6: 9,
    7: 3,
    8: 3,
    9: 5,
    10: 5,
    11: 5,
    12: 5,
    15: 4,
    16: 3,
    17: 5,
    18: 5,
    19: 3,
    20: 3,
}
"""Bytes of each entry of a class file's constant pool, by its tag. Texts (1) have a length of their own."""
_FILES = frozenset({"hoodie.properties", "hoodie.properties.backup", "hoodie.properties.updated"})
"""Files of a table, whose names look like settings."""
_PACKAGES = ("org/apache/hudi/", "org/apache/spark/")

_SECTIONS = {
    "checked": """\
## Checked

Passed on with a value of the second column. A test has written tables with the value of the third; for some names one
of the sink's own settings stands.
""",
    "harmless": """\
## Harmless

Passed on as they are. Where they touch files, a test has written tables with the value of the third column.
""",
    "refused": """\
## Refused

No worker starts with one of these, and `sink validate` says why. Where the second column has a value, it is the one
that the sink itself uses, and may be written down.
""",
}
_INTRODUCTION = """\
# Settings of Hudi

Written by `python -m sink.devtools.hudi_keys` from the sink's own list; do not edit by hand.

A configuration may set Hudi's own settings under their names (`hoodie.*`), for all sinks or beneath one of them.
Hudi 1.2 reads the names below, older names of the same settings included.
Each is in one of three classes: **checked**, **harmless** or **refused**.
**What nobody has tried with the sink is refused**: a setting that means something to one writer may lose, double or
change rows where a fleet writes one instant together
([decision 76](decisions/0076-every-setting-of-hudi-is-in-a-class.md)).

- A name that Hudi does not know is passed on, for other jars read some, and `sink validate` notes it.
- A name that is at most two letters away from one below is refused, with the name that was probably meant.
- `spark.hoodie.*` and `spark.hadoop.hoodie.*` are refused: they would pass by this list.
- The errors table takes none of these settings but the place of its lock (`hoodie.write.lock.zookeeper.base_path`).
- What the table itself says (`hoodie.properties`) is compared whenever it is opened
  ([share a table](how-to/share-a-table.md)).

`python -m sink.devtools.hudi_keys --compare` holds the list against the jar, and so does a test.
"""


def names_in(jar: Path) -> tuple[dict[str, list[str]], set[str]]:
    """Returns the fields of settings by the name of their class, and every text of Hudi's classes that looks like the
    name of a setting.
    """
    fields: dict[str, list[str]] = {}
    texts: set[str] = set()
    with zipfile.ZipFile(jar) as members:
        for member in members.namelist():
            if member.startswith(_PACKAGES) and member.endswith(".class"):
                constants, declared = _parsed(members.read(member))
                texts |= {text.decode() for text in constants if _NAME.fullmatch(text)}
                if declared:
                    fields[member.removesuffix(".class").replace("/", ".")] = declared
    return fields, texts - _FILES


def _parsed(data: bytes) -> tuple[list[bytes], list[str]]:
    """Returns a class file's constant texts, and its fields of settings."""
    (count,) = struct.unpack_from(">H", data, 8)
    texts: dict[int, bytes] = {}
    constants: list[int] = []
    at, index = 10, 1
    while index < count:
        tag = data[at]
        if tag == 1:
            (length,) = struct.unpack_from(">H", data, at + 1)
            texts[index] = data[at + 3 : at + 3 + length]
            at += 3 + length
        else:
            if tag == 8:
                constants.append(struct.unpack_from(">H", data, at + 1)[0])
            at += _CONSTANT_SIZES[tag]
        index += 2 if tag in (5, 6) else 1
    (interfaces,) = struct.unpack_from(">H", data, at + 6)
    is_module = texts.get(struct.unpack_from(">H", data, at + 2)[0], b"").endswith(b"$")
    return [texts[i] for i in constants], list(_fields(data, at + 8 + 2 * interfaces, texts, is_module))


def _fields(data: bytes, at: int, texts: Mapping[int, bytes], is_module: bool) -> Iterator[str]:
    kind = f"L{_PROPERTY.replace('.', '/')};".encode()
    (count,) = struct.unpack_from(">H", data, at)
    at += 2
    for _ in range(count):
        flags, name, descriptor, attributes = struct.unpack_from(">HHHH", data, at)
        at += 8
        for _ in range(attributes):
            at += 6 + struct.unpack_from(">I", data, at + 2)[0]
        if texts[descriptor] == kind and (flags & _STATIC or is_module):
            yield texts[name].decode()


def settings_of_classes(jvm: Any, fields: Mapping[str, Iterable[str]]) -> set[str]:
    """Returns the names of the settings in these fields, with their alternatives, from a JVM that has the classes."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    names: set[str] = set()
    for class_name, field_names in fields.items():
        kind = jvm.java.lang.Class.forName(class_name, True, loader)
        # A Scala object keeps its settings in its only instance.
        owner = kind.getField("MODULE$").get(None) if class_name.endswith("$") else None
        for field_name in field_names:
            field = kind.getDeclaredField(field_name)
            field.setAccessible(True)
            setting = field.get(owner)
            names |= {str(setting.key()), *map(str, setting.getAlternatives())}
    return names


def differences(jvm: Any, jar: Path) -> list[str]:
    """Returns a sentence for each name that only the list has, or only Hudi's classes."""
    fields, texts = names_in(jar)
    settings = settings_of_classes(jvm, fields)
    missing = sorted((settings | {text for text in texts if _is_whole(text, settings)}) - KEYS.keys())
    names = settings | texts
    gone = [name for name in KEYS if not any(map(re.compile(re.escape(name).replace(r"\*", ".+")).fullmatch, names))]
    to_add = "Hudi reads it, and hudi_keys.tsv does not have it. Add it, refused until it was tried."
    to_remove = "hudi_keys.tsv has it, and Hudi does not read it. Remove it there."
    return [*(f"{name}: {to_add}" for name in missing), *(f"{name}: {to_remove}" for name in gone)]


def _is_whole(text: str, settings: Iterable[str]) -> bool:
    """Tells a name from the beginning of others."""
    return not any(name.startswith(f"{text}.") for name in settings)


def page() -> str:
    """Returns the page of the list."""
    return "\n".join([_INTRODUCTION, *_lines()]).rstrip() + "\n"


def _lines() -> Iterator[str]:
    for kind, section in _SECTIONS.items():
        yield section
        for reason, why in REASONS.items():
            keys = [key for key in KEYS.values() if (key.kind, key.reason) == (kind, reason)]
            if keys:
                yield f"**{why[0].upper()}{why[1:]}**\n"
                yield "| setting | values | tried |\n|---|---|---|"
                yield from (
                    f"| `{key.name}` | {_values(key)} | {f'`{key.tried}`' if key.tried else ''} |" for key in keys
                )
                yield ""


def _values(key: HudiKey) -> str:
    if key.values.startswith("setting "):
        return f"`{key.values.removeprefix('setting ')}` stands for it"
    if ".." in key.values:
        low, _, high = key.values.partition("..")
        return f"{low} to {high or INT_MAX}"
    words = {
        "": "",
        "flag": "`true`, `false`",
        "znode": "a znode's path",
        "name": "a name",
        "properties": "no `EXTERNAL`, no purge",
    }
    return words.get(key.values) or ", ".join(f"`{value}`" for value in key.values.split("|") if value)


def _compare() -> int:
    jars = spark_jars()
    [bundle] = [jar for jar in jars if jar.name.startswith("hudi-")]
    [py4j] = pyspark_jars().glob("py4j-*.jar")
    port = launch_gateway(
        jarpath=str(py4j),
        classpath=":".join([*map(str, jars), str(pyspark_jars() / "*")]),
        javaopts=["-Xmx512m"],
        java_path=str(find_java().binary),
        die_on_exit=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        found = differences(gateway.jvm, bundle)
    finally:
        gateway.shutdown()
    sys.stdout.writelines(f"{sentence}\n" for sentence in found)
    return 1 if found else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sink.devtools.hudi_keys", description="Hudi's settings as a page.")
    parser.add_argument("--compare", action="store_true", help="compare the list with Hudi's jar instead")
    if parser.parse_args().compare:
        return _compare()
    sys.stdout.write(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
