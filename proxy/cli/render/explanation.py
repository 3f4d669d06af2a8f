"""The text of ``explain`` for one request."""

from collections.abc import Iterator
from textwrap import wrap

from proxy.cli.render.number_format import long_duration
from proxy.cli.render.tables import Cell, Column, Table, lay_out, text_of
from proxy.cli.render.yaml_lines import commented_yaml
from proxy.config import Setting
from proxy.config.diagnostics.units import format_duration
from proxy.explain.explanation import (
    ExplainedAttempt,
    ExplainedEnding,
    Explanation,
    span,
    time_range,
)
from proxy.policy.reasons import VerdictReason

_WIDTH = 80
_ROUTE_ITSELF = ("name", "match", "upstream", "policy")
"""Keys that are shown elsewhere than in the policy."""
_SOURCES = {"backoff": "back-off", "hint": "as the upstream asks"}


def explanation_lines(explanation: Explanation) -> Iterator[str]:
    """Yield the lines of the text."""
    request, subject = explanation.request, explanation.subject
    yield f"{request.method} {request.target}{f' at {request.host}' if request.host else ''}"
    yield ""
    yield from _route_lines(explanation)
    if subject is None:
        return
    yield ""
    yield "Its policy:"
    yield from commented_yaml(_relevant(explanation.policy), _WIDTH)
    yield ""
    yield f"The upstream {subject.upstream.name}:"
    yield from commented_yaml(_relevant(explanation.upstream), _WIDTH)
    yield ""
    if explanation.limits:
        yield from _wrapped(explanation.limits)
        yield ""
    yield from _hand_off_lines(explanation)
    if explanation.forecast is None:
        yield from _wrapped(
            "Write --outcome 503 (say), once for each attempt, to see what would follow."
        )
        return
    yield "What follows, if no other request is in flight:"
    unjudged = "nothing ends it" if subject.is_judged else "no verdict: nothing is repeated"
    for attempt in explanation.attempts:
        yield from _attempt_lines(attempt, unjudged)
    for number, ending in enumerate(explanation.endings):
        yield from _ending_lines(ending, "" if number == 0 else "Or: ")


def _hand_off_lines(explanation: Explanation) -> Iterator[str]:
    hand_off, subject = explanation.hand_off, explanation.subject
    if hand_off is not None:
        yield from _wrapped(hand_off.text)
        yield ""
    if not explanation.shows_delivery:
        return
    if hand_off is None:
        name = "" if subject is None else subject.route.name
        yield from _wrapped(f"The route {name} does not hand off: write hand_off: true in it.")
        yield ""
        return
    planned = hand_off.delivery
    yield "If every try fails and nothing defers it, since its acceptance:"
    rows = [
        (Cell(str(each.number)), Cell(_when(each.earliest)), Cell(_when(each.latest)))
        for each in planned.tries
    ]
    columns = (Column("try"), Column("earliest"), Column("latest"))
    for line in lay_out(Table("", columns, list(rows)), _WIDTH)[1:]:
        yield f"  {text_of(line)}"
    if planned.is_cut:
        yield "  ... and more"
    age = format_duration(planned.give_up_after)
    yield from _wrapped(f"It is given up {age} after its acceptance, whatever it waits for.")
    if hand_off.if_failed:
        yield from _wrapped(
            "Handed off after a failure it was tried before, and try 1 comes after the first wait."
        )
    yield from _wrapped(planned.text)
    yield from _wrapped(planned.crash)
    yield ""


def _when(seconds: float | None) -> str:
    """Format a time since the acceptance; None: it may be given up before."""
    return "-" if seconds is None else long_duration(seconds)


def _route_lines(explanation: Explanation) -> Iterator[str]:
    subject = explanation.subject
    if subject is None:
        yield "No route matches, so it gets 404 no_route:"
    else:
        yield from _wrapped(
            f"The route {subject.route.name} ({explanation.where}) takes it to the upstream "
            f"{subject.upstream.name}."
        )
        if explanation.others:
            yield "Earlier routes that do not match:"
    for name, reason in explanation.others:
        yield from _wrapped(f"{name}: {reason}", "  ", "    ")


def _attempt_lines(attempt: ExplainedAttempt, unjudged: str) -> Iterator[str]:
    reasons = "; or ".join(
        str(reason) if reason is VerdictReason.RETRIED else f"{reason} ({meaning})"
        for reason, meaning in zip(attempt.reasons, attempt.meaning, strict=True)
    )
    yield from _wrapped(
        f"{attempt.number}. {attempt.outcome}: {reasons or unjudged}", "  ", "     "
    )
    if attempt.queued[1] > 0:
        yield f"     after {span(attempt.queued)} in the queue"
    if attempt.wait:
        shortest, longest = attempt.wait
        wait_reason = " or ".join(_SOURCES[source] for source in attempt.source)
        yield f"     wait {time_range((shortest, longest))} ({wait_reason})"
    if attempt.same_url:
        yield "     then the same URL again: the others do not know its key"


def _ending_lines(ending: ExplainedEnding, first: str) -> Iterator[str]:
    yield from _wrapped(first + ending.text)
    if ending.dead_letter:
        yield "It is kept as a dead letter."
    yield from _wrapped(ending.key_text)
    if ending.remedies:
        yield f"To have it sent again{'' if len(ending.remedies) == 1 else ', one of'}:"
    for remedy in ending.remedies:
        yield from _wrapped(f"- {remedy}", "  ", "    ")
    if ending.advice:
        yield "No setting has it sent again. What may help:"
    for advice in ending.advice:
        yield from _wrapped(f"- {advice}", "  ", "    ")


def _relevant(settings: list[Setting]) -> list[Setting]:
    """Return the settings worth showing: no empty defaults, nothing that is shown elsewhere."""
    shown = [
        setting
        for setting in settings
        if setting.keys[0] not in _ROUTE_ITSELF
        and not (setting.is_built_in and setting.value in ([], {}))
    ]
    filled = {s.keys[:depth] for s in shown if not s.is_section for depth in range(len(s.keys))}
    return [s for s in shown if not s.is_section or s.value is False or s.keys in filled]


def _wrapped(text: str, first: str = "", then: str = "") -> Iterator[str]:
    yield from wrap(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=then,
        break_long_words=False,
        break_on_hyphens=False,
    )
