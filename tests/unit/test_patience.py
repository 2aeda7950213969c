"""The batch size controller bounds new batches after one was too large."""

from coordination.machines.pacing import BatchSizeController
from coordination.planning.slicing import Limits

CONFIGURED = Limits(flush_size=1000, slice_records=10)


def test_until_a_batch_is_divided_the_settings_are_the_bound() -> None:
    controller = BatchSizeController()
    controller.note_commit(100, 10)
    assert controller.limits(CONFIGURED) is CONFIGURED


def test_after_a_division_a_batch_takes_half_of_the_divided_one() -> None:
    controller = BatchSizeController()
    controller.note_division(800)
    assert controller.limits(CONFIGURED) == Limits(1000, 10, 400)


def test_a_configured_budget_that_is_smaller_still_binds() -> None:
    controller = BatchSizeController()
    controller.note_division(800)
    assert controller.limits(Limits(1000, 10, 300)) == Limits(1000, 10, 300)


def test_batches_grow_with_care_up_to_the_size_that_was_too_large_and_fast_from_there() -> None:
    controller = BatchSizeController()
    controller.note_division(320)
    sizes = []
    while (limits := controller.limits(CONFIGURED)) is not CONFIGURED:
        assert limits.transaction_records is not None
        sizes.append(limits.transaction_records)
        controller.note_commit(100, 10)
    assert sizes[:3] == [160, 170, 180]
    reached = next(number for number, size in enumerate(sizes) if size >= 320)
    assert 10 < reached < 15
    assert sizes[reached + 1] == 2 * sizes[reached]
    assert len(sizes) < 50


def test_where_less_than_a_slice_was_too_large_a_batch_takes_less_than_a_slice() -> None:
    controller = BatchSizeController()
    controller.note_division(6)
    assert controller.limits(CONFIGURED).transaction_records == 3


def test_what_an_offset_weighs_is_known_once_a_transaction_was_read_and_follows_the_last_ones() -> None:
    controller = BatchSizeController()
    assert controller.bytes_per_offset is None
    controller.note_commit(size=0, offsets=0)
    assert controller.bytes_per_offset is None
    controller.note_commit(size=100_000, offsets=1_000)
    assert controller.bytes_per_offset == 100
    controller.note_commit(size=300_000, offsets=1_000)
    assert controller.bytes_per_offset == 200


def test_a_bound_in_bytes_follows_what_offsets_weigh() -> None:
    controller = BatchSizeController(flush_bytes=1 << 20)
    assert controller.limits(CONFIGURED).transaction_records == 1024
    for _ in range(40):
        controller.note_commit(size=100_000, offsets=1_000)
    assert controller.limits(CONFIGURED).transaction_records == (1 << 20) // 100
    controller.note_commit(size=0, offsets=0)
    controller.note_division(50)
    assert controller.limits(CONFIGURED).transaction_records == 25


def test_a_record_larger_than_the_bound_is_still_taken() -> None:
    controller = BatchSizeController(flush_bytes=10)
    assert controller.limits(CONFIGURED).transaction_records == 1
