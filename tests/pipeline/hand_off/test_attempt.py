"""Whether a try of a delivery has sent anything is asked of all its attempts."""

from types import SimpleNamespace
from typing import cast

import pytest

from proxy.core.exchange import Exchange
from proxy.pipeline.hand_off.attempt import last_sent
from proxy.policy.attempt import Attempt


@pytest.mark.parametrize(
    ("sent", "number"),
    [
        pytest.param([], None, id="none was made"),
        pytest.param([False], None, id="nothing was sent"),
        pytest.param([True], 1, id="it was sent"),
        pytest.param([True, False], 1, id="a stale connection was replaced, but nothing sent"),
        pytest.param([True, True], 2, id="the last of those sent"),
    ],
)
def test_the_last_that_was_sent(sent: list[bool], number: int | None) -> None:
    attempts = [Attempt(n, "api", 0.0, sent=is_sent) for n, is_sent in enumerate(sent, 1)]
    exchange = cast("Exchange", SimpleNamespace(attempts=attempts))
    found = last_sent(exchange)
    assert (None if found is None else found.number) == number
