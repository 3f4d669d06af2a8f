"""What was sent of a delivery, as attempts that the rules about repeats can judge."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from proxy.policy.attempt import Attempt, FailureKind
from proxy.policy.dead_letter import restored_attempt
from proxy.policy.delivery.state import Delivery, DeliveryRun

RETRIED = "retried"
"""The result of a run that stands for a person's retry: what came before forbids nothing."""


@dataclass(frozen=True, slots=True)
class DeliveryHistory:
    """All attempts of a delivery, in seconds since the epoch."""

    attempts: tuple[Attempt, ...] = ()
    """Those that count: since its acceptance, or since a person had it sent again."""
    earlier: tuple[Attempt, ...] = ()
    """Those before: a key is as old as they are, and known where they went."""


def attempts_of_delivery(delivery: Delivery, runs: Sequence[DeliveryRun]) -> DeliveryHistory:
    """Return all attempts on record, and one for each URL that may have got it besides.

    The second kind is what an owner left that died: nobody knows when it was sent, so it counts as
    sent when the delivery was accepted.
    """
    retried = max((n for n, run in enumerate(runs) if run.result == RETRIED), default=-1)
    earlier = tuple(_attempts(delivery, runs[: retried + 1]))
    attempts = list(_attempts(delivery, runs[retried + 1 :]))
    recorded = {attempt.url for attempt in (*earlier, *attempts) if attempt.sent}
    urls = (*delivery.ran_at, *delivery.sending_to)
    attempts += [_lost_attempt(delivery, url) for url in urls if url not in recorded]
    if delivery.may_have_run and not recorded and not urls:
        attempts.append(_lost_attempt(delivery, ""))  # it is not known where: no key helps
    return DeliveryHistory(tuple(attempts), earlier)


def _attempts(delivery: Delivery, runs: Iterable[DeliveryRun]) -> Iterator[Attempt]:
    for run in runs:
        yield from map(restored_attempt, run.attempts)
        if not run.attempts:
            yield from (_lost_attempt(delivery, url) for url in run.urls)


def _lost_attempt(delivery: Delivery, url: str) -> Attempt:
    attempt = Attempt(0, delivery.upstream, delivery.accepted)
    attempt.url, attempt.kind, attempt.sent = url, FailureKind.RESET, True
    return attempt
