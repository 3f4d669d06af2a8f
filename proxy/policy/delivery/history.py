"""What was sent of a delivery, as attempts that the rules about repeats can judge."""

from collections.abc import Iterable

from proxy.policy.attempt import Attempt, FailureKind
from proxy.policy.dead_letter import restored_attempt
from proxy.policy.delivery.state import Delivery, DeliveryRun


def attempts_of_delivery(
    delivery: Delivery, runs: Iterable[DeliveryRun], offset: float = 0.0
) -> tuple[Attempt, ...]:
    """Return all attempts on record, and one for each URL that may have got it besides.

    The second kind is what an owner left that died: nobody knows when it was sent, so it counts as
    sent when the delivery was accepted. *offset* converts seconds since the epoch to those of the
    clock by which attempts are judged.
    """
    known = [restored_attempt(record, offset) for run in runs for record in run.attempts]
    recorded = {attempt.url for attempt in known if attempt.sent}
    lost = [url for url in (*delivery.ran_at, *delivery.sending_to) if url not in recorded]
    if delivery.may_have_run and not recorded and not lost:
        lost = [""]  # it is not known where: no key helps
    return (*known, *(_lost_attempt(delivery, url, offset) for url in lost))


def _lost_attempt(delivery: Delivery, url: str, offset: float) -> Attempt:
    attempt = Attempt(0, delivery.upstream, delivery.accepted + offset)
    attempt.url, attempt.kind, attempt.sent = url, FailureKind.RESET, True
    return attempt
