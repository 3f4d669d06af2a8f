"""What ``explain`` says of hand-off: whether, when it is tried, and what a crash would do to it.

All of it comes from the rules that serve: acceptance, schedule and repeats of ``policy/delivery/``.
"""

import math
from dataclasses import dataclass
from itertools import islice

from proxy.config.diagnostics.units import format_duration, format_size
from proxy.explain.subject import Subject
from proxy.http.framing import CHUNKED
from proxy.http.prefer import AsyncPreference, read_prefer
from proxy.policy.caller_fields import display_name
from proxy.policy.delivery.acceptance import Acceptance, HandOffRules, NotHandedOff
from proxy.policy.delivery.outcome import DeliveryFacts, DeliveryRules
from proxy.policy.delivery.schedule import PlannedTry, planned_tries
from proxy.policy.repeatable import RepeatPermission
from proxy.policy.settings import HandOffSettings, HandOffWhen

_MOST_TRIES = 100
"""Tries that are shown: a list of short waits has very many."""
_SOME_KEY = b"d_"


@dataclass(frozen=True, slots=True)
class PlannedDelivery:
    """How a request is delivered once it is handed off, and what a crash would do to it."""

    tries: tuple[PlannedTry, ...]
    """If each fails and nothing defers it."""
    is_cut: bool
    """Whether more tries follow than are shown."""
    give_up_after: float
    """Seconds."""
    is_repeatable: bool
    """Whether it is sent again if a try may have run."""
    repeatable_for: float | None
    """Seconds after its first such try for which it is; None: always, or never."""
    only_same_url: bool
    """Whether it then goes to the same one of several URLs."""
    adds_key: bool
    """Whether its id becomes its key for the upstream."""
    text: str
    """Whether it is repeatable, and until when."""
    crash: str
    """What a crash would do to it."""


@dataclass(frozen=True, slots=True)
class ExplainedHandOff:
    """Whether a request is handed off, on a route that does so."""

    when: HandOffWhen | None
    """Why it is handed off before anything is sent; None if it is not."""
    obstacle: NotHandedOff | None
    """Why it is not."""
    if_failed: bool
    """Whether it may be handed off if its attempts fail."""
    text: str
    delivery: PlannedDelivery

    def as_json(self, *, has_delivery: bool) -> dict[str, object]:
        """Return it as JSON; times are in seconds."""
        answer: dict[str, object] = {
            "when": self.when,
            "why_not": self.obstacle,
            "if_failed": self.if_failed,
            "text": self.text,
        }
        if not has_delivery:
            return answer
        planned = self.delivery
        return {
            **answer,
            "schedule": [
                {"n": each.number, "earliest": each.earliest, "latest": each.latest}
                for each in planned.tries
            ],
            "schedule_is_cut": planned.is_cut,
            "give_up_after": planned.give_up_after,
            "repeatable": planned.is_repeatable,
            "repeatable_for": planned.repeatable_for,
            "only_same_url": planned.only_same_url,
            "adds_key": planned.adds_key,
            "repeatable_text": planned.text,
            "crash": planned.crash,
        }


def explain_hand_off(subject: Subject) -> ExplainedHandOff | None:
    """Say whether *subject* is handed off; None if its route does not do so."""
    route = subject.route
    settings = route.hand_off
    if settings is None or subject.is_tunnelled:
        return None
    rules = HandOffRules(route, subject.upstream)
    names = [name.lower().decode("latin-1") for name, _ in subject.head.raw]
    preference = read_prefer(value for name, value in subject.head.raw if name.lower() == b"prefer")
    length = None if subject.head.length == CHUNKED else subject.head.length
    acceptance = rules.accept(subject.method, names, length, is_asked=preference is not None)
    if acceptance.when is not None and length is not None and length > route.buffer:
        acceptance = Acceptance(None, NotHandedOff.TOO_LARGE, acceptance.is_forced)
    if_failed = (
        acceptance.when is None
        and acceptance.obstacle is NotHandedOff.NOT_ASKED
        and HandOffWhen.FAILED in settings.when
        and not rules.refused_credentials(names)
    )
    key = None
    if acceptance.when is not None:
        key = rules.added_key(subject.method, names, ())
    return ExplainedHandOff(
        acceptance.when,
        acceptance.obstacle,
        if_failed,
        _text(settings, acceptance, preference, route.timeout, if_failed=if_failed),
        _planned(subject, settings, key),
    )


def _text(
    settings: HandOffSettings,
    acceptance: Acceptance,
    preference: AsyncPreference | None,
    timeout: float | None,
    *,
    if_failed: bool,
) -> str:
    if acceptance.when is not None:
        return _accepted_text(acceptance.when, preference, timeout)
    if acceptance.obstacle is not NotHandedOff.NOT_ASKED:
        return _obstacle_text(settings, acceptance)
    may_ask = HandOffWhen.ASKED in settings.when
    if if_failed:
        asks = ", or if the client asks (Prefer: respond-async)" if may_ask else ""
        return (
            f"It is handed off if its attempts fail and another one does no harm{asks}; else it is "
            "served as ever."
        )
    if may_ask:
        return "It is not handed off: the client does not ask for it (Prefer: respond-async)."
    return "It is not handed off if its attempts fail: its credentials would have to be stored."


def _accepted_text(
    when: HandOffWhen, preference: AsyncPreference | None, timeout: float | None
) -> str:
    cause = "the client asks for it" if when is HandOffWhen.ASKED else "hand_off: always"
    text = f"It is handed off ({cause}): it gets 202 once it is on disk"
    wait = None if preference is None else preference.wait
    if not wait:
        return f"{text}."
    longest = wait if timeout is None else min(wait, timeout)
    return f"{text}, or the upstream's answer if that comes within {format_duration(longest)}."


def _obstacle_text(settings: HandOffSettings, acceptance: Acceptance) -> str:
    """Say why a request is not handed off that would be otherwise."""
    if acceptance.obstacle is NotHandedOff.METHOD:
        listed = ", ".join(sorted(settings.methods))
        return f"It is not handed off: hand_off.methods has {listed}."
    if acceptance.obstacle is NotHandedOff.TOO_LARGE:
        then = "it gets 413 body_too_large" if acceptance.is_forced else "it is served as ever"
        most = format_size(settings.max_body)
        return f"It is not handed off, because its body is too large: {then} (max_body {most})."
    names = " and ".join(map(display_name, acceptance.fields))
    then = "it gets 400 bad_request" if acceptance.is_forced else "it is served as ever"
    return (
        f"It is not handed off, because {names} would have to be stored: {then}. Let "
        "headers.request set or remove that, or write credentials: store (or drop)."
    )


def _planned(subject: Subject, settings: HandOffSettings, key: str | None) -> PlannedDelivery:
    tries = tuple(islice(planned_tries(settings), _MOST_TRIES + 1))
    request = subject if key is None else subject.with_field(key.encode(), _SOME_KEY)
    rules = DeliveryRules(settings, subject.upstream)
    permission = rules.if_in_doubt(DeliveryFacts(request, 0.0, 0, (), 0.0))
    is_repeatable = isinstance(permission, RepeatPermission)
    within, url = math.inf, ""
    if isinstance(permission, RepeatPermission):
        within, url = permission.within, permission.url
    same_url = bool(url) and len(subject.upstream.origins) > 1
    return PlannedDelivery(
        tries=tries[:_MOST_TRIES],
        is_cut=len(tries) > _MOST_TRIES,
        give_up_after=settings.give_up_after,
        is_repeatable=is_repeatable,
        repeatable_for=within if is_repeatable and within < math.inf else None,
        only_same_url=same_url,
        adds_key=key is not None,
        text=_repeatable_text(subject, within if is_repeatable else None, key, same_url=same_url),
        crash=_crash_text(subject, is_repeatable=is_repeatable),
    )


def _repeatable_text(
    subject: Subject, within: float | None, key: str | None, *, same_url: bool
) -> str:
    if within is None:
        return (
            "It is not repeatable: after a try that may have run it is not sent again. A try that "
            "did not run is repeated."
        )
    if within == math.inf:
        return "It is repeatable: it may run twice, so it is sent again whatever a try did."
    honoured = subject.upstream.honours_key
    header = "" if honoured is None else display_name(honoured.header)
    added = f", which Holdfast adds as {header}" if key is not None else f" ({header})"
    where = ", at the same URL" if same_url else ""
    return (
        f"It is repeatable by its key{added}{where}, for {format_duration(within)} after its first "
        "try that may have run."
    )


def _crash_text(subject: Subject, *, is_repeatable: bool) -> str:
    first = "A crash before or between tries changes nothing: it is on disk."
    if is_repeatable:
        return f"{first} A crash while it is being sent: it is sent again, the same bytes."
    kept = (
        "as a dead letter that says that it may have run"
        if subject.route.dead_letter is not None
        else "and is forgotten after its ttl (write dead_letter: true to keep it)"
    )
    return f"{first} A crash while it is being sent: it fails as uncertain, {kept}."
