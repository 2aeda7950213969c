"""Says what a value that cannot be read begins like, where its first bytes tell which serializer wrote it."""

from __future__ import annotations

LOOKED_AT = 20
"""The bytes of a value that are looked at."""
_SHORTEST_FRAMED = 6
_JSON = (b"{", b"[")
_BEGINNINGS = (
    (
        b"\0",
        "Its first byte is 0, as in a schema registry's header: if it has one, set the format that ends in -confluent",
    ),
    (b"\x03\0", "It begins like AWS Glue's header, which is not read. Have the producer leave it out"),
    (b"\x1f\x8b", "It begins like gzip. Have the producer set compression.type, and leave the value as it is"),
    (b"Obj\x01", "It begins like a file of Avro. Have the producer send each record without the file around it"),
    (b"\xff\xfe", "It begins like UTF-16. Have the producer write UTF-8"),
    (b"\xfe\xff", "It begins like UTF-16. Have the producer write UTF-8"),
)


def way_out(beginning: bytes, is_json: bool) -> str:
    """Returns a sentence to go behind the reason of a bad value; empty if its first bytes tell nothing.

    `is_json`: the value should be JSON.
    """
    if not is_json and beginning.startswith(_JSON):
        return ". It begins like JSON: if it is, set the format json."
    for known, sentence in _BEGINNINGS:
        if beginning.startswith(known) and len(beginning) >= _SHORTEST_FRAMED:
            return f". {sentence}."
    return ""
