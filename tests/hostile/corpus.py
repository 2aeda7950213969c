"""Inputs that hurt parsers: deep, long and huge ones are generated, what a fuzzer found is in `corpus/PARSER/`."""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto

from tests.hostile.parsers import AVRO, PARSERS

FOUND = Path(__file__).parent / "corpus"
MB = 1_000_000
Make = Callable[[], bytes]


def varint(number: int) -> bytes:
    content = b""
    while number > 127:
        content += bytes([number & 127 | 128])
        number >>= 7
    return content + bytes([number])


def zigzag(number: int) -> bytes:
    return varint((number << 1) ^ (number >> 63))


def _record(name: str, *fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind} for field, kind in fields]}


def _unfolding(levels: int, width: int, leaf: Any) -> dict[str, Any]:
    inner = _record(f"R{levels}", ("x", leaf))
    for level in range(levels - 1, -1, -1):
        inner = _record(f"R{level}", ("f0", inner), *((f"f{n}", f"R{level + 1}") for n in range(1, width)))
    return inner


def _referring(levels: int, of_next: Callable[[dict[str, str]], Any]) -> bytes:
    definitions = {f"A{level}": of_next({"$ref": f"#/definitions/A{level + 1}"}) for level in range(levels)}
    return json.dumps({"definitions": definitions, "$ref": "#/definitions/A0"}).encode()


def _object(properties: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **more}


def _schema(properties: Any, **more: Any) -> bytes:
    return json.dumps(_object(properties, **more)).encode()


def _numbered(count: int, kind: Any) -> dict[str, Any]:
    return {f"p{number}": kind for number in range(count)}


def _objects(levels: int, name: str, inner: Any, **more: Any) -> Any:
    for _ in range(levels):
        inner = _object({name: inner}, **more)
    return inner


_DRAFT_4 = {"$schema": "http://json-schema.org/draft-04/schema#"}
_NONE = {"type": [{"a": number} for number in range(20_000)]}


def _sharing(shared: Any, count: int = 4_900) -> bytes:
    return _schema(_numbered(count, {"$ref": "#/definitions/A"}), definitions={"A": shared})


def _avro_sharing(shared: Any, count: int = 2_400) -> bytes:
    fields = (("f0", _record("A", ("x", shared))), *((f"f{number}", "A") for number in range(1, count)))
    return json.dumps(_record("R", *fields)).encode()


def _long_avro(levels: int) -> dict[str, Any]:
    inner = _record("L", *((f"f{number}", ["int", "string"]) for number in range(4_900)))
    for level in range(levels):
        inner = _record(f"L{level}", ("n" * 1_000, inner))
    return inner


def _enum_fields(values: int, count: int) -> bytes:
    file = FileDescriptorProto(name="a.proto", syntax="proto3")
    kind = file.enum_type.add(name="E")
    for number in range(values):
        kind.value.add(name=f"v{number}", number=number)
    message = file.message_type.add(name="M")
    for number in range(1, count + 1):
        message.field.add(name=f"f{number}", number=number, type=14, label=1, type_name=".E")
    return file.SerializeToString()


def _messages(levels: int, width: int) -> bytes:
    file = FileDescriptorProto(name="a.proto", syntax="proto3")
    for level in range(levels + 1):
        message = file.message_type.add(name=f"M{level}")
        for number in range(1, width + 1):
            kind, name = (11, f".M{level + 1}") if level < levels else (9, None)
            message.field.add(name=f"f{number}", number=number, type=kind, label=1, type_name=name)
    return file.SerializeToString()


def _group(depth: int) -> bytes:
    return b"\x7b" * depth + b"\x7c" * depth


_AVRO_START = zigzag(1)
_SKIPPED_ARRAY = _AVRO_START + zigzag(2)
_LAUGHS = b"a0: &a0 {x: 1}\n" + b"".join(
    b"a%d: &a%d {%s}\n" % (n, n, b", ".join(b"k%d: *a%d" % (k, n - 1) for k in range(9))) for n in range(1, 15)
)


def _aliases(count: int) -> bytes:
    return b"".join(b"k%d: *x\n" % number for number in range(count))


_GET = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n"
_POST = b"POST /pause?sink=x HTTP/1.1\r\nHost: 127.0.0.1\r\n"
_ZEROS = gzip.compress(bytes(9 * MB))
_CHUNKED = _POST + b"Transfer-Encoding: chunked\r\n\r\n"
_OF_THE_SINK: Mapping[str, Mapping[str, Make]] = {
    "avro": {
        "tree": lambda: _AVRO_START + zigzag(1) * MB,
        "tree-and-neighbour": lambda: _AVRO_START + zigzag(1) + b"|||" + _AVRO_START * 50,
        "null-blocks": lambda: _SKIPPED_ARRAY + zigzag(3_000) * 4_000,
        "huge-block": lambda: _SKIPPED_ARRAY + zigzag(1 << 62) + b"\0" * 100,
        "negative-block": lambda: _SKIPPED_ARRAY + zigzag(-(1 << 62)) + zigzag(-7) + b"\0" * 100,
        "long-array": lambda: _AVRO_START + b"\0\0\0\0\0" + zigzag(MB) + b"\2" * MB,
        "long-text": lambda: _AVRO_START + b"\0\0\0" + zigzag(20 * MB) + b"x" * 20 * MB,
        "huge-text": lambda: _AVRO_START + b"\0\0\0" + zigzag(1 << 62),
        "negative-text": lambda: _AVRO_START + b"\0\0\0" + zigzag(-5),
        "many-values": lambda: b"|||".join([_AVRO_START] * 20_000),
        "long-decimal": lambda: _AVRO_START + b"\0\0\0\0" + zigzag(MB) + b"\x7f" * MB,
    },
    "avro-schema": {
        "unfolding": lambda: json.dumps(_unfolding(17, 10, "int")).encode(),
        "deep": lambda: b'{"type":' * 100_000,
        "lists": lambda: b"[" * 100_000,
        "long": lambda: b'{"type": ["' + b"x" * 5 * MB + b'"]}',
        "many-parts": lambda: b'{"type":[' + b"[]," * 300_000 + b"[]]}",
        "namespace": lambda: json.dumps({**_record("R", ("x", "int")), "namespace": "n" * MB}).encode(),
        "self": lambda: json.dumps(_record("R", ("x", "R"))).encode(),
        "shared-union": lambda: _avro_sharing(["null"] * 40_000),
        "shared-names": lambda: _avro_sharing(
            ["null"] + [_record(f"{n}" + "n" * 900, ("x", "int")) for n in range(300)]
        ),
        "shared-enum": lambda: _avro_sharing(
            {"type": "enum", "name": "E", "symbols": [f"s{number}" for number in range(30_000)]}
        ),
        "long-names": lambda: json.dumps(_record("A", ("n" * 1_000, _long_avro(60)))).encode(),
        "parsed": lambda: b'{"__fastavro_parsed": true, "type": "record", "name": "R", "fields": [{}]}',
        "size": lambda: json.dumps(_record("R", ("i", {"type": "fixed", "name": "F", "size": -1}))).encode(),
        "size-text": lambda: json.dumps(_record("R", ("i", {"type": "fixed", "name": "F", "size": "x"}))).encode(),
    },
    "avro-both": {
        "empty-records": lambda: json.dumps(_record("W", ("s", _unfolding(30, 2, "null")))).encode() + b"\0",
        "shared-enum": lambda: (
            _avro_sharing({"type": "enum", "name": "E", "symbols": [f"s{number}" for number in range(30_000)]}) + b"\0"
        ),
        "many-fields": lambda: json.dumps(_record("W", ("s", _unfolding(11, 2, "int")))).encode() + b"\0" + b"\2" * 99,
        "huge-fixed": lambda: (
            json.dumps(_record("W", ("i", {"type": "fixed", "name": "F", "size": 1 << 70}))).encode() + b"\0x"
        ),
    },
    "protobuf": {
        "groups": lambda: _group(100_000),
        "open-groups": lambda: b"\x7b" * MB,
        "group-end": lambda: b"\x7c",
        "packed": lambda: b"\x32" + varint(MB) + b"\1" * MB,
        "packed-length": lambda: b"\x32" + varint((1 << 63) - 1) + b"\1",
        "packed-open": lambda: b"\x32" + varint(1_000) + b"\xff" * 1_000,
        "nested": lambda: b"\x42\x00" * 100_000,
        "deep": lambda: _nested_messages(3_000),
        "huge-length": lambda: b"\x1a" + varint((1 << 64) - 1) + b"x",
        "long-varint": lambda: b"\x08" + b"\xff" * 100_000,
        "many-fields": lambda: b"\x08\x01" * (MB // 2),
        "long-text": lambda: b"\x1a" + varint(20 * MB) + b"x" * 20 * MB,
    },
    "protobuf-schema": {
        "unfolding": lambda: _messages(17, 10),
        "wide": lambda: _messages(0, 60_000),
        "shared-enum": lambda: _enum_fields(30_000, 4_900),
        "deep": lambda: b"\x22\x05" * 10_000,
    },
    "json": {
        "deep": lambda: b'{"i":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        "deep-objects": lambda: b'{"i":' * 100_000 + b"1" + b"}" * 100_000,
        "deep-open": lambda: b"[" * MB,
        "deep-text": lambda: b'{"s":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        "digits": lambda: b'{"l":' + b"9" * MB + b"}",
        "digits-decimal": lambda: b'{"d":' + b"9" * MB + b"." + b"9" * MB + b"}",
        "digits-double": lambda: b'{"x":' + b"9" * MB + b"}",
        "exponent": lambda: b'{"d":1e999999999,"x":1e999999999,"f":1e-999999999,"l":1e999999999}',
        "exponent-text": lambda: b'{"d":"1e999999999","s":1e999999999}',
        "exponent-negative": lambda: b'{"d":1e-999999999}',
        "long-text": lambda: b'{"s":"' + b"x" * 20 * MB + b'"}',
        "escapes": lambda: b'{"s":"' + b"\\u00e9" * (MB // 6) + b'"}',
        "open-escapes": lambda: b'{"s":"' + b"\\a" * (MB // 2),
        "infinities": lambda: b'{"x":' + b"+INF" * (MB // 4) + b"}",
        "same-name": lambda: b"{" + b'"i":1,' * 100_000 + b'"i":2}',
        "other-names": lambda: b"{" + b",".join(b'"n%d":1' % number for number in range(100_000)) + b"}",
        "timestamp": lambda: b'{"t":"' + b"1" * MB + b'"}',
        "timestamp-zone": lambda: b'{"t":"2024-01-01T00:00:00' + b"+" * MB + b'"}',
        "many-values": lambda: b"|||".join([b"{"] * 20_000),
    },
    "json-sample": {
        "deep": lambda: b'{"i":' * 5_000 + b"1" + b"}" * 5_000,
        "names": lambda: b"{" + b",".join(b'"n%d":1' % number for number in range(50_000)) + b"}",
        "long-names": lambda: (
            (b'{"%s":' % (b"n" * 50_000)) * 15 + json.dumps(_numbered(9_000, None)).encode() + b"}" * 15
        ),
        "digits": lambda: b'{"l":' + b"9" * MB + b"}",
        "exponent": lambda: b'{"d":1e999999999}|||{"d":1.5}',
    },
    "json-schema": {
        "unfolding": lambda: _referring(
            17, lambda ref: {"type": "object", "properties": {f"p{n}": ref for n in range(10)}}
        ),
        "all-of": lambda: _referring(40, lambda ref: {"allOf": [ref, ref]}),
        "chain": lambda: _referring(3_000, lambda ref: ref),
        "self": lambda: b'{"type": "object", "properties": {"x": {"$ref": "#"}}}',
        "self-of-self": lambda: b'{"$ref": "#"}',
        "all-of-self": lambda: b'{"allOf": [{"$ref": "#"}, {"$ref": "#"}], "type": "object"}',
        "pattern": lambda: b'{"type": "object", "patternProperties": {"(a+)+$": {}}, "pattern": "(a+)+b"}',
        "deep": lambda: b'{"items":' * 100_000,
        "enum-objects": lambda: _schema({"x": {"enum": [{"a": number} for number in range(24_000)]}}, **_DRAFT_4),
        "enum-mixed": lambda: _schema({"x": {"enum": [*range(20_000), "a", None]}}, **_DRAFT_4),
        "types": lambda: _schema({"x": {"type": [{"a": number} for number in range(24_000)]}}),
        "wide": lambda: _schema(_numbered(24_000, {"type": "string"})),
        "wide-definitions": lambda: _schema({"x": {}}, definitions=_numbered(48_000, {})),
        "long-names": lambda: json.dumps(_objects(62, "n" * 1_000, _object(_numbered(4_900, {})))).encode(),
        "warnings": lambda: json.dumps(_objects(3, "n" * 1_000, _object(_numbered(4_900, {})))).encode(),
        "long-reference": lambda: _sharing({"$ref": "r" * MB}),
        "unknown": lambda: _schema({name: {"$ref": f"x:{name}"} for name in _numbered(4_900, 0)}),
        "anchors": lambda: _schema(
            {name: {"$ref": f"#{name}"} for name in _numbered(4_900, 0)},
            definitions={name: {"$id": f"#{name}", "type": "string"} for name in _numbered(4_900, 0)},
        ),
        "ids": lambda: json.dumps(
            _objects(62, "n", _object(_numbered(4_900, {"$id": "x"})), **{"$id": "i" * 9_000 + "/"})
        ).encode(),
        "shared-enum": lambda: _sharing({"enum": ["a"] * 40_000}),
        "shared-types": lambda: _sharing({"enum": ["a", 1] * 20_000}),
        "shared-branches": lambda: _sharing({"oneOf": [{"type": "string"}] * 15_000}),
        "shared-choices": lambda: _sharing({"properties": {"x": {}}, "anyOf": [True] * 40_000}, 2_400),
        "shared-names": lambda: _schema(
            {},
            allOf=[{"$ref": "#/definitions/A"}] * 10_000,
            definitions={"A": _object(_numbered(4_900, True))},
        ),
        "deep-2019": lambda: json.dumps(
            {
                "$schema": "https://json-schema.org/draft/2019-09/schema",
                **_objects(60, "n", _object(_numbered(4_900, {}))),
            }
        ).encode(),
        "nested-errors": lambda: json.dumps(
            {
                **_DRAFT_4,
                **_object(
                    {}, additionalProperties=_objects(60, "n", {"type": "object", "additionalProperties": _NONE})
                ),
            }
        ).encode(),
        "ranges": lambda: json.dumps({"pattern": "(?i)" + "[\u0100-\U0010ffff]" * 20_000}).encode(),
    },
    "framing": {
        "ids": lambda: b"|||".join(struct.pack(">bI", 0, 70_000 + number) for number in range(8_000)),
        "paths": lambda: b"|||".join(
            b"\0\0\0\0\7" + zigzag(2) + zigzag(number % 64) + zigzag(number // 64) for number in range(8_000)
        ),
        "guids": lambda: b"|||".join(b"\1" + number.to_bytes(16, "big") for number in range(8_000)),
        "first-bytes": lambda: b"|||".join(bytes([number % 256]) * 9 for number in range(8_000)),
        "many-indexes": lambda: b"\0\0\0\0\7" + zigzag(1 << 62),
    },
    "registry": {
        "self": lambda: b'{"id": 7, "schema": "x", "references": [{"name": "a", "subject": "a", "version": 1}]}',
        "doubling": lambda: json.dumps(
            {"id": 8, "schema": "x", "references": [{"name": "a", "subject": "a", "version": 1}] * 100_000}
        ).encode(),
        "no-schema": lambda: b'{"schema": null}',
        "kind": lambda: b'{"schema": "x", "schemaType": {"a": [1]}}',
        "long": lambda: json.dumps({"schema": "x" * 20 * MB}).encode(),
    },
    "znodes": {
        "deep": lambda: b"[" * 100_000,
        "digits": lambda: b'{"format": ' + b"9" * MB + b"}",
        "deflated": lambda: b"zlib:" + zlib.compress(b'{"format": 1, "x": "' + b"x" * 50 * MB + b'"}'),
    },
    "checkpoints": {
        "deep": lambda: b'{"format": 1, "topics": ' + b"[" * 100_000,
        "digits": lambda: b'{"format": ' + b"9" * MB + b"}",
    },
    "footers": {
        "magic": lambda: b"PAR1" + b"\xff" * 100 + b"\xff\xff\xff\x7fPAR1",
        "avro-magic": lambda: b"Obj\x01" + zigzag(1 << 62),
        "avro-long-meta": lambda: b"Obj\x01" + zigzag(1) + zigzag(11) + b"avro.schema" + zigzag(1 << 40),
    },
    "configuration": {
        "laughs": lambda: _LAUGHS,
        "lists": lambda: b"a: &x [" + b"a," * 20_000 + b"]\n" + _aliases(10_000),
        "lists-of-more": lambda: b"a: &x [" + b"a," * 20_000 + b"{b: c}]\n" + _aliases(10_000),
        "names": lambda: b"? " + b"a" * MB + b"\n:\n" + b"".join(b" k%d: 1\n" % n for n in range(15_000)),
        "placeholders": lambda: b"a: &x {? " + b"a" * MB + b" : }\n" + _aliases(10_000),
        "sinks": lambda: b"sinks:\n ? " + b"a" * MB + b"\n :\n" + b"".join(b"  k%d: 1\n" % n for n in range(15_000)),
        "deep": lambda: b"[" * 100_000,
        "digits": lambda: b"flush.size: " + b"9" * 100_000,
        "regex": lambda: b"kafka.topic.regex: '([a-z]+)+x'",
        "long-line": lambda: b"a" * MB,
        "backslashes": lambda: b"a=" + b"\\" * MB,
    },
    "ddl": {
        "deep": lambda: b"a " + b"array<" * 100_000,
        "wide": lambda: b", ".join(b"a%d int" % number for number in range(50_000)),
        "quotes": lambda: b"a int comment '" + b"\\'" * 100_000,
        "avro": lambda: json.dumps(_unfolding(17, 10, "int")).encode(),
        "decimal": lambda: b"a decimal(" + b"9" * 100_000 + b")",
    },
    "topics": {
        "nested": lambda: b"([a-z]+)+x",
        "counts": lambda: b"(?:(?:a{0,249}){0,249}){0,249}",
        "deep": lambda: b"(" * 900,
        "groups": lambda: b"(a)" * 300,
        "branches": lambda: b"(" + b"|".join([b"a"] * 400) + b")*",
    },
    "texts": {
        "token": lambda: b"token" * 20_000,
        "letters": lambda: b"a" * 100_000,
        "addresses": lambda: b"http://" * 20_000,
        "blanks": lambda: b"token" + b" " * 100_000,
        "keys": lambda: b"-----BEGIN " * 10_000,
    },
    "http": {
        "long-line": lambda: b"GET /" + b"a" * 5 * MB,
        "long-header": lambda: _GET + b"X: " + b"a" * 5 * MB,
        "many-headers": lambda: _GET + b"".join(b"X-%d: y\r\n" % number for number in range(100_000)) + b"\r\n",
        "folded-headers": lambda: _GET + b"X: y\r\n" + b" \r\n" * 5_000 + b"\r\n",
        "huge-length": lambda: _POST + b"Content-Length: " + b"9" * 4_000 + b"\r\n\r\nx",
        "negative-length": lambda: _POST + b"Content-Length: -1\r\n\r\nx",
        "two-lengths": lambda: _POST + b"Content-Length: 1\r\nContent-Length: 5\r\n\r\n" + _GET + b"\r\n",
        "length-and-chunks": lambda: _CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Length: 3\r\n\r\n") + b"0\r\n\r\n",
        "many-chunks": lambda: _CHUNKED + b"1\r\nx\r\n" * 500_000 + b"0\r\n\r\n",
        "huge-chunk": lambda: _CHUNKED + b"f" * 60 + b"\r\n" + b"x" * MB,
        "chunk-line": lambda: _CHUNKED + b"0" * 5 * MB,
        "zipped": lambda: _POST + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(_ZEROS) + _ZEROS,
        "bad-text": lambda: b"GET /health?sink=%ff%fe\xff\xfe HTTP/1.1\r\nHost: \xff\xfe\r\nX: \xc3\x28\r\n\r\n",
        "pipelined": lambda: (_GET + b"\r\n") * 2_000,
        "no-host": lambda: b"GET / HTTP/1.1\r\n\r\n",
        "two-hosts": lambda: _GET + b"Host: other\r\n\r\n",
        "odd-host": lambda: b"GET / HTTP/1.1\r\nHost: [::1]:99999999:@" + b"[" * 9_000 + b"\r\n\r\n",
        "escapes": lambda: b"GET /%2e%2e/..%2f..%5c/%00/etc/passwd" + b"/.." * 3_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        "absolute": lambda: b"GET http://[:80/%zz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "long-query": lambda: (
            b"GET /status?" + b"&".join([b"sink=%41"] * 1_700) + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        ),
        "authorization": lambda: _POST + b"Authorization: Bearer " + b"\xff" * 9_000 + b"\r\n\r\n",
        "upgrade": lambda: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0" * 10_000,
        "tls": lambda: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 500,
    },
}

GENERATED: Mapping[str, Mapping[str, Make]] = {
    **_OF_THE_SINK,
    "audit-avro": {
        **_OF_THE_SINK["avro"],
        "nested": lambda: _AVRO_START + zigzag(1) * 5_000,
        "empty-items": lambda: _AVRO_START + zigzag(300_000_000) + b"\0",
        "sized-empty-items": lambda: _AVRO_START + zigzag(-(1 << 40)) + zigzag(0) + b"\0",
    },
    "audit-avro-schema": {
        **_OF_THE_SINK["avro-schema"],
        "empty-records": lambda: json.dumps(_record("W", ("s", _unfolding(30, 2, "null")))).encode(),
    },
    "audit-protobuf": _OF_THE_SINK["protobuf"],
    "audit-json": _OF_THE_SINK["json"],
}


def _nested_messages(depth: int) -> bytes:
    content = b"\x08\x01"
    for _ in range(depth):
        content = b"\x12" + varint(len(content)) + content
    return b"\x42" + varint(len(content)) + content


def names() -> list[tuple[str, str]]:
    """Returns parser and name of each input."""
    found = [(path.parent.name, path.name) for path in sorted(FOUND.glob("*/*"))]
    return [(parser, name) for parser, inputs in GENERATED.items() for name in inputs] + found


def content(parser: str, name: str) -> bytes:
    make = GENERATED[parser].get(name)
    return make() if make is not None else (FOUND / parser / name).read_bytes()


def seeds(parser: str) -> Iterator[bytes]:
    """Yields small inputs to begin with: those of the corpus, and a valid one."""
    valid = {
        "avro": _AVRO_START + b"\0\2\6\0\6abc\4\1\2\4\2\4\0\2\2k\2\0\0",
        "avro-schema": AVRO.encode(),
        "avro-both": AVRO.encode() + b"\0" + _AVRO_START + b"\0\2\6\0\6abc\4\1\2\0\0\0",
        "protobuf": b"\x08\x01\x10\x02\x1a\x01x\x21\0\0\0\0\0\0\0\0\x32\x02\1\2\x42\x04\x08\x01\x12\x00",
        "protobuf-schema": _messages(2, 2),
        "json": b'{"i":1,"s":"x","d":1.5,"t":"2024-01-01T00:00:00Z","a":[1],"m":{"a":1},"st":{"a":1}}|||{}',
        "json-sample": b'{"i":1,"s":"x","d":1.5,"a":[{"x":null}]}|||{"i":"x"}',
        "json-schema": b'{"type":"object","properties":{"a":{"oneOf":[{"type":"null"},{"$ref":"#/definitions/B"}]}},'
        b'"definitions":{"B":{"type":"array","items":{"type":"number"}}}}',
        "framing": b"\0\0\0\0\7\0\2|||\0\0\0\0\7\2\0\2",
        "registry": b'{"schema":"x","schemaType":"AVRO","id":8}',
        "znodes": b'{"format":1,"dataVersion":0}',
        "checkpoints": b'{"format":1,"topics":{"t":"id"},"ends":{"t":{"0":[1,2]}}}',
        "footers": b"PAR1\0\0\0\0PAR1",
        "configuration": b"kafka.topic.regex: a.*\ntarget.base.path: /lake/{topic}\nflush.size: 1_000\n",
        "ddl": b"id bigint not null, a array<struct<x: decimal(5,2)>> comment 'x', `b c` map<string, int>",
        "topics": b"(?<region>[a-z]+)-(?:a|b)*[.].{2,3}",
        "texts": b"password=abc http://user:pw@host/ -----BEGIN PRIVATE KEY-----",
        "http": _GET + b"\r\n" + _POST + b"Content-Length: 2\r\n\r\n{}",
    }
    yield valid[parser.removeprefix("audit-")]
    assert set(valid) == {parser.removeprefix("audit-") for parser in PARSERS}
    for name in (found.name for found in sorted((FOUND / parser).glob("*"))):
        yield content(parser, name)
    for make in GENERATED[parser].values():
        if len(small := make()) <= 4_096:
            yield small
