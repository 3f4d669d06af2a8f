"""What was sent of a delivery, by its runs and by the URLs that may have got it."""

from dataclasses import replace

from proxy.policy.delivery.history import RETRIED, attempts_of_delivery
from proxy.policy.delivery.state import DeliveryRun
from tests.policy.delivery.test_state import DELIVERY

PLAIN = replace(DELIVERY, ran_at=(), sending_to=(), may_have_run=False)


def run(url: str, start: float = 5.0) -> DeliveryRun:
    record = {"url": url, "start": start, "outcome": "timeout", "sent": True, "upstream": "api"}
    return DeliveryRun(9.0, "failed", (record,), may_have_run=True, urls=(url,))


def test_attempts_on_record() -> None:
    history = attempts_of_delivery(replace(PLAIN, ran_at=("u1",)), (run("u1"),))
    assert [(one.url, one.started) for one in history.attempts] == [("u1", 5.0)]
    assert history.earlier == ()


def test_what_a_dead_owner_left_is_as_old_as_the_delivery() -> None:
    died = DeliveryRun(9.0, "uncertain", (), may_have_run=True, urls=("u1", "u2"))
    delivery = replace(PLAIN, ran_at=("u1", "u2"), may_have_run=True)
    history = attempts_of_delivery(delivery, (died,))
    assert [(one.url, one.started) for one in history.attempts] == [
        ("u1", delivery.accepted),
        ("u2", delivery.accepted),
    ]
    assert all(one.sent for one in history.attempts)
    assert attempts_of_delivery(delivery, ()).attempts, "also where its run is not known"


def test_it_may_have_run_though_nobody_knows_where() -> None:
    (lost,) = attempts_of_delivery(replace(PLAIN, may_have_run=True), ()).attempts
    assert (lost.url, lost.sent) == ("", True)


def test_what_came_before_a_retry_by_a_person_is_apart() -> None:
    runs = (run("u1", 1.0), DeliveryRun(9.0, RETRIED, ()), run("u1", 2.0))
    history = attempts_of_delivery(replace(PLAIN, ran_at=("u1",), may_have_run=True), runs)
    assert [one.started for one in history.earlier] == [1.0]
    assert [one.started for one in history.attempts] == [2.0]
