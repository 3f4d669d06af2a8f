"""A delivery and its row: what is written, and what is read of it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from proxy.http.fields import RawHeaders
from proxy.policy.delivery.state import Delivery, DeliveryRun, LetterTerms
from proxy.policy.delivery.words import DeferralReason, DeliveryState
from proxy.stores import StoreError
from proxy.stores.deliveries.ports import NewDelivery
from proxy.stores.sqlite_file.columns import Columns

_NONSENSE = "what is stored of a delivery is invalid"
COLUMNS = Columns(
    "id TEXT, route TEXT, upstream TEXT, method TEXT, target BLOB, wiped TEXT, size INTEGER,"
    " request_id TEXT, peer TEXT, scheme TEXT, record TEXT, fingerprint BLOB, scope TEXT,"
    " holder TEXT, accepted REAL, gives_up REAL, give_up_after REAL, due REAL, state TEXT,"
    " attempts INTEGER, tries INTEGER, last_try REAL, may_have_run INTEGER, ran_at TEXT,"
    " sending_to TEXT, has_key INTEGER, added_key TEXT, why TEXT, error TEXT, deferred TEXT,"
    " ttl REAL, letter_ttl REAL, allowed INTEGER, caller TEXT, credentials TEXT,"
    " response_status INTEGER, ended REAL, expires REAL, version INTEGER",
    _NONSENSE,
)
"""What a list shows; the header fields are read besides where they are needed."""
_STATES = {state.value: state for state in DeliveryState}
_DEFERRALS = {reason.value: reason for reason in DeferralReason}


def read_delivery(row: tuple[object, ...], correction: float, headers: RawHeaders = ()) -> Delivery:
    """Return the delivery of a *row* of :data:`COLUMNS`, with dates in place of the file's times.

    *correction* is what the date is ahead of those (``file_clock.py``).
    """
    values = COLUMNS.read(row)
    state = _STATES.get(values["state"])
    if state is None:
        raise StoreError(_NONSENSE)
    allowed, caller = values.pop("allowed"), values.pop("caller")
    credentials, letter_ttl = values.pop("credentials"), values.pop("letter_ttl")
    letter = None
    if letter_ttl > 0:
        letter = LetterTerms(letter_ttl, allowed, caller, _strings(credentials))
    last_try = values["last_try"]
    values.update(
        state=state,
        target=values["target"].decode("utf-8", "surrogateescape"),
        headers=headers,
        wiped=_strings(values["wiped"]),
        caller=values.pop("holder"),
        accepted=values["accepted"] + correction,
        gives_up=values["gives_up"] + correction,
        due=values["due"] + correction,
        last_try=last_try + correction if last_try else 0.0,
        may_have_run=bool(values["may_have_run"]),
        ran_at=_strings(values["ran_at"]),
        sending_to=_strings(values["sending_to"]),
        has_key=bool(values["has_key"]),
        deferred=_DEFERRALS.get(values["deferred"]),
        reason=values.pop("why"),
        letter=letter,
    )
    return Delivery(**values)


def as_accepted(new: NewDelivery, wall: float) -> Delivery:
    """Return *new* as it is once it is accepted, at *wall*."""
    ran_at = dict.fromkeys(url for run in new.runs for url in run.urls)
    return Delivery(
        id=new.id,
        route=new.route,
        upstream=new.upstream,
        method=new.method,
        target=new.target,
        headers=new.headers,
        wiped=tuple(sorted(new.wiped)),
        size=len(new.body),
        request_id=new.request_id,
        peer=new.peer,
        scheme=new.scheme,
        record=new.record,
        fingerprint=new.fingerprint,
        scope=new.scope,
        caller=new.caller,
        accepted=wall,
        gives_up=wall + new.give_up_after,
        give_up_after=new.give_up_after,
        due=wall + new.delay,
        may_have_run=any(run.may_have_run for run in new.runs),
        ran_at=tuple(ran_at),
        has_key=new.has_key,
        added_key=new.added_key,
        ttl=new.ttl,
        letter=new.letter,
    )


def to_row(
    delivery: Delivery, headers: str, dropped: Iterable[str], weight: int, correction: float
) -> dict[str, object]:
    """Return the values of the row of a *delivery* that was accepted just now."""
    letter = delivery.letter
    return {
        "id": delivery.id,
        "created": delivery.accepted,
        "expires": 0.0,
        "route": delivery.route,
        "method": delivery.method,
        "target": delivery.target.encode("utf-8", "surrogateescape"),
        "request_id": delivery.request_id,
        "error": "",
        "category": "",
        "why": "",
        "used": 0,
        "allowed": 0 if letter is None else letter.allowed,
        "may_have_run": int(delivery.may_have_run),
        "replay_state": "waiting",
        "replays": 0,
        "size": delivery.size,
        "missing": "",
        "caller": "" if letter is None else letter.caller,
        "credentials": json.dumps([] if letter is None else letter.credentials),
        "owner": "",
        "weight": weight,
        "peer": delivery.peer,
        "scheme": delivery.scheme,
        "record": delivery.record,
        "fallback": "",
        "holder": delivery.caller,
        "headers": headers,
        "dropped": json.dumps(list(dropped)),
        "state": delivery.state.value,
        "is_letter": 0,
        "filed": "",
        "upstream": delivery.upstream,
        "fingerprint": delivery.fingerprint,
        "scope": delivery.scope,
        "accepted": delivery.accepted - correction,
        "gives_up": delivery.gives_up - correction,
        "give_up_after": delivery.give_up_after,
        "due": delivery.due - correction,
        "attempts": 0,
        "tries": 0,
        "last_try": 0.0,
        "ran_at": json.dumps(delivery.ran_at),
        "sending_to": "[]",
        "has_key": int(delivery.has_key),
        "added_key": delivery.added_key,
        "deferred": "",
        "ttl": delivery.ttl,
        "letter_ttl": 0.0 if letter is None else letter.ttl,
        "wiped": json.dumps(delivery.wiped),
        "response_status": 0,
        "ended": 0.0,
        "version": 0,
    }


def changes(after: Delivery, correction: float) -> dict[str, object]:
    """Return the columns that a change of state writes."""
    return {
        "state": after.state.value,
        "attempts": after.attempts,
        "tries": after.tries,
        "may_have_run": int(after.may_have_run),
        "ran_at": json.dumps(after.ran_at),
        "sending_to": json.dumps(after.sending_to),
        "why": after.reason,
        "error": after.error,
        "due": after.due - correction,
        "deferred": "" if after.deferred is None else after.deferred.value,
        "response_status": after.response_status,
        "ended": after.ended,
        "expires": after.expires,
        "version": after.version,
    }


def split_headers(headers: RawHeaders, wiped: Iterable[str]) -> tuple[str, str, list[str]]:
    """Return the fields that stay, those that are wiped, and the names of these.

    Those that are wiped are with their places, so that :func:`join_headers` has all in order.
    """
    secret = frozenset(wiped)
    kept: list[tuple[str, str]] = []
    apart: list[tuple[int, str, str]] = []
    for place, (name, value) in enumerate(_texts(headers)):
        if name.lower() in secret:
            apart.append((place, name, value))
        else:
            kept.append((name, value))
    names = list(dict.fromkeys(name for _, name, _ in apart))
    return json.dumps(kept), json.dumps(apart) if apart else "", names


def join_headers(kept: str, apart: str = "[]") -> RawHeaders:
    """Return the fields that :func:`split_headers` has split."""
    fields = [(name, value) for name, value in _read(kept)]
    for place, name, value in _read(apart):
        fields.insert(place, (name, value))
    return tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in fields)


def headers_text(headers: RawHeaders) -> str:
    """Return header fields as they are stored."""
    return json.dumps(list(_texts(headers)))


def _texts(headers: RawHeaders) -> Iterable[tuple[str, str]]:
    return ((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers)


_CORRECTED_BY = "clock"
"""In the record of an attempt: what the date was corrected by when it was written."""


def read_run(row: tuple[float, str, str, int, str], correction: float = 0.0) -> DeliveryRun:
    """Return a run from its row, with the dates that its attempts have by today's *correction*."""
    time, result, attempts, may_have_run, urls = row
    records = tuple(_redated(record, correction) for record in _read(attempts))
    return DeliveryRun(time, result, records, bool(may_have_run), _strings(urls))


def _redated(record: dict[str, object], correction: float) -> Mapping[str, object]:
    """Return the record of an attempt, as old as it is though the clock was set since."""
    before, start = record.pop(_CORRECTED_BY, 0.0), record.get("start")
    if isinstance(start, float | int) and isinstance(before, float | int):
        record["start"] = start + correction - before
    return record


def run_values(run: DeliveryRun, correction: float = 0.0) -> tuple[object, ...]:
    """Return the values of the row of a run, behind its delivery and number."""
    records = run.attempts
    if correction:
        records = tuple({**record, _CORRECTED_BY: correction} for record in records)
    return (
        run.time,
        run.result,
        json.dumps(records),
        int(run.may_have_run),
        json.dumps(run.urls),
    )


def with_deferral(delivery: Delivery, reason: str) -> Delivery:
    """Return *delivery* with the reason why its route sends nothing, unless it has its own."""
    if delivery.deferred is not None:
        return delivery
    return replace(delivery, deferred=_DEFERRALS.get(reason))


def _strings(text: str) -> tuple[str, ...]:
    return tuple(map(str, _read(text))) if text != "[]" else ()


def _read(text: str) -> Sequence:  # type: ignore[type-arg]  # whatever we wrote
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list):
        raise StoreError(_NONSENSE)
    return found
