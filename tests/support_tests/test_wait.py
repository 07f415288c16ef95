import pytest
from support.wait import wait_until, wait_until_async


def test_the_first_true_value_is_returned():
    values = iter([0, "", 3, 4])
    assert wait_until(lambda: next(values), what="a number") == 3


def test_a_deadline_says_what_was_awaited_and_what_was_seen():
    with pytest.raises(AssertionError, match=r"not within 0\.05 s: two frames \(last seen: \[\]\)"):
        wait_until(list, timeout_s=0.05, what="two frames")


async def test_on_the_loop_predicates_may_be_plain_or_coroutines():
    values = iter([0, 3, 0, 4])

    async def following() -> int:
        return next(values)

    assert await wait_until_async(lambda: next(values), what="a number") == 3
    assert await wait_until_async(following, what="a number") == 4
    with pytest.raises(AssertionError, match="never"):
        await wait_until_async(lambda: False, timeout_s=0.05, what="never")
