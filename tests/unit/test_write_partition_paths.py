"""Values that may be a directory of the table, and Hudi's escaping of other ones."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sink.layout.partition_paths import NULL_PARTITION, PartitionPaths
from sink.layout.partition_times import BadPartition
from sink.layout.record_keys import RecordKeys

CONTROL = [chr(code) for code in (*range(0x20), 0x7F)]
REMEDY = "hoodie.datasource.write.partitionpath.urlencode=true"


def rows_of(*columns: list[str | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name: pa.array(column) for name, column in zip("ab", columns, strict=False)})


@pytest.mark.parametrize("hive_style", [True, False])
@pytest.mark.parametrize("value", ["12:00", "k:v", ":", "2024-01-01 12:00", *(f"x{char}y" for char in CONTROL)])
def test_colons_and_control_characters_are_refused_with_their_row_and_the_remedy(value: str, hive_style: bool) -> None:
    for fields, columns in [(("a",), [["fine", value]]), (("a", "b"), [["fine", "x"], ["fine", value]])]:
        with pytest.raises(BadPartition) as refusal:
            PartitionPaths(fields, hive_style, False).group(rows_of(*columns))
        assert min(refusal.value.reasons) == 1
        assert REMEDY in str(refusal.value)


@pytest.mark.parametrize("hive_style", [True, False])
@pytest.mark.parametrize("char", [*CONTROL, ":", *"\"#%'*/=?[]\\^{"])
def test_url_encoding_lets_them_pass(char: str, hive_style: bool) -> None:
    path = PartitionPaths(("a",), hive_style, True).group(rows_of([f"x{char}y"])).paths[0]
    assert path == ("a=" if hive_style else "") + f"x%{ord(char):02X}y"


@pytest.mark.parametrize("value", ["a b", "Zürich", "100%", "5%of%a", "a+b&c", "it's", "q?#[]^{", '"', "<>|;,~"])
def test_other_awkward_values_pass_as_they_are(value: str) -> None:
    assert PartitionPaths(("a",), False, False).group(rows_of([value])).paths == (value,)


@pytest.mark.parametrize(
    ("value", "hive_style", "escaped"),
    [("a%41b", True, "a=a%2541b"), ("a%41b", False, "a%2541b"), ("5%2f", True, "a=5%252f"), ("x=y", False, "x%3Dy")],
)
def test_what_readers_would_take_for_another_value_is_refused(value: str, hive_style: bool, escaped: str) -> None:
    with pytest.raises(BadPartition, match=REMEDY):
        PartitionPaths(("a",), hive_style, False).group(rows_of([value]))
    assert PartitionPaths(("a",), hive_style, True).group(rows_of([value])).paths == (escaped,)


@pytest.mark.parametrize(("value", "hive_style"), [("a/b", False), ("a/b=c", True)])
def test_a_slash_by_which_readers_would_find_more_values_than_columns_is_refused(value: str, hive_style: bool) -> None:
    for columns in ([["fine", value], ["x", "y"]], [["fine", "x"], ["z", value]]):
        with pytest.raises(BadPartition, match=rf"3 values for 2 columns\. {REMEDY}") as refusal:
            PartitionPaths(("a", "b"), hive_style, False).group(rows_of(*columns))
        assert min(refusal.value.reasons) == 1
        assert len(PartitionPaths(("a", "b"), hive_style, True).group(rows_of(*columns)).paths) == 2


def test_other_slashes_pass_as_they_are() -> None:
    assert PartitionPaths(("a", "b"), True, False).group(rows_of(["x/y"], ["z/w"])).paths == ("a=x/y/b=z/w",)
    for hive_style, prefix in ((True, "a="), (False, "")):
        assert PartitionPaths(("a",), hive_style, False).group(rows_of(["x/y"])).paths == (f"{prefix}x/y",)
    assert PartitionPaths(("a",), True, False).group(rows_of(["x/y=z"])).paths == ("a=x/y=z",)


def test_of_the_text_itself_a_reader_of_hive_style_takes_an_equals_sign() -> None:
    assert PartitionPaths(("a",), True, False).group(rows_of(["x=y"])).paths == ("a=x=y",)


HIDDEN = [".hidden", "_x", "_temporary", ".hoodie_partition_metadata", "..", "__HIVE_DEFAULT_PARTITION__x"]


@pytest.mark.parametrize("url_encode", [True, False])
@pytest.mark.parametrize("value", [*HIDDEN, "x/.y", "x/_y"])
def test_what_readers_would_skip_needs_hive_style(value: str, url_encode: bool) -> None:
    if url_encode and "/" in value:
        return
    with pytest.raises(BadPartition) as refusal:
        PartitionPaths(("a",), False, url_encode).group(rows_of(["fine", value]))
    assert [*refusal.value.reasons] == [1]
    assert "partition.hive.style=true" in str(refusal.value)
    if "/" not in value:
        assert PartitionPaths(("a",), True, url_encode).group(rows_of([value])).paths == (f"a={value}",)


@pytest.mark.parametrize("hive_style", [True, False])
@pytest.mark.parametrize("value", ["", NULL_PARTITION])
def test_a_text_that_readers_take_for_null_is_refused_and_null_is_not(value: str, hive_style: bool) -> None:
    for columns, bad in (([["x", value, None]], [1]), ([["x", None, value], [value, "y", "z"]], [2])):
        fields = ("a", "b")[: len(columns)]
        with pytest.raises(BadPartition, match="which readers take for null") as refusal:
            PartitionPaths(fields, hive_style, False).group(rows_of(*columns))
        assert [*refusal.value.reasons] == bad
    (path,) = PartitionPaths(("a",), hive_style, False).group(rows_of([None])).paths
    assert path == ("a=" if hive_style else "") + NULL_PARTITION


def test_of_many_columns_of_many_values_each_row_keeps_its_own() -> None:
    """There are more combinations than 64 bits count, though few of them occur."""
    count, width = 1000, 8
    columns = {f"c{k}": pa.array([(row * (2 * k + 1)) % count for row in range(count)]) for k in range(width)}
    groups = PartitionPaths(tuple(columns), False, False).group(pa.RecordBatch.from_pydict(columns))
    expected = ["/".join(str(values[row]) for values in columns.values()) for row in range(count)]
    assert [groups.paths[code] for code in groups.codes.tolist()] == expected


def test_of_several_refused_rows_the_first_is_named() -> None:
    for values in (["ok", "z:1", "a:1", ".."], ["ok", "..", "a:1"], ["ok", "a:1", ".."]):
        with pytest.raises(BadPartition) as refusal:
            PartitionPaths(("a",), False, False).group(rows_of(values))
        assert min(refusal.value.reasons) == 1


@pytest.mark.parametrize(
    ("day", "text"),
    [
        (0, "1970-01-01"),
        (2_932_896, "9999-12-31"),
        (2_932_897, "+10000-01-01"),
        (3_000_000, "+10183-09-21"),
        (20_000_000, "+56728-02-22"),
        (-719_529, "-0001-12-31"),
        (-800_000, "-0221-09-04"),
    ],
)
def test_partition_paths_and_record_keys_have_dates_as_java_writes_them(day: int, text: str) -> None:
    rows = pa.RecordBatch.from_pydict({"a": pa.array([day, None], pa.int32()).cast(pa.date32())})
    offsets = pa.array(["0", "1"])
    assert RecordKeys(("a",), False).column(rows, "t", pa.scalar("0"), offsets).to_pylist() == [text, None]
    assert PartitionPaths(("a",), True, False).group(rows).paths == (f"a={text}", "a=__HIVE_DEFAULT_PARTITION__")
