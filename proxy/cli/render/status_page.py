"""``/status`` as a person wants to see it: a few lines on the process, then tables.

Only what a file uses has a column: without throttles there is no queue, without keys
there are no duplicates. Green is as it should be, yellow worth a look, red a reason to act.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from proxy.cli.render.number_format import brief, several, share, short, span
from proxy.cli.render.tables import Cell, Column, Line, Page, Table, Tone
from proxy.cli.untrusted_json import UntrustedJson, printable

_MANY_ERRORS = 0.05
"""From this share of failed requests on it is more than a few."""
_FEW_RECOVERIES = 0.5
"""Below this share of retries that worked they are mostly in vain."""
_DASH = Cell("-")


def status_page(status: UntrustedJson) -> Page:
    """What ``/status`` tells."""
    # Requests that no route took matter only if there are any.
    routes = [
        (name, route)
        for name, route in status.part("routes").members()
        if not name.startswith("_") or _requests(route)
    ]
    upstreams = status.part("upstreams")
    tables = (
        _table("Routes", "route", routes, _TOTALS),
        _table("Now", "route", routes, _now(upstreams)),
        _table("Failed attempts", "route", [each for each in routes if _failed(each[1])], _FAILED),
        _table("Dead letters", "route", _having("dead_letters", routes), _LETTERS),
        _table("Throttles", "of", _throttled(routes, upstreams), _THROTTLES),
        _addresses(status.part("addresses")),
        _workers(status.parts("workers")),
    )
    return Page(list(_lines(status)), [table for table in tables if table.rows])


# The process.


def _lines(status: UntrustedJson) -> Iterator[Line]:
    state = status.text("state")
    uptime = span(status.number("uptime_seconds") or 0.0)
    reloads = status.part("reloads")
    yield (
        Cell(f"holdfast {status.text('version')}: "),
        Cell(state, Tone.GOOD if state == "ready" else Tone.WARNING),
        Cell(f", up {uptime}, {several(status.count('connections'), 'connection')}"),
    )
    failed = reloads.count("failure")
    yield (
        Cell(f"reloads: {reloads.count('success')} good, "),
        Cell(f"{failed} refused", Tone.WARNING if failed else Tone.PLAIN),
    )
    restarts = status.count("worker_restarts")
    if "workers" in status:
        yield (
            Cell(f"workers: {len(status.parts('workers'))}, "),
            Cell(several(restarts, "restart"), Tone.WARNING if restarts else Tone.PLAIN),
        )
    yield (
        _store(status.part("store"))
        if "store" in status
        else (Cell("store: memory of this process"),)
    )
    keys, known = status.part("keys"), status.part("known_keys")
    if keys.count("in_flight") or keys.count("waiting"):
        yield (Cell(f"keys: {keys.count('in_flight')} in flight, {keys.count('waiting')} waiting"),)
    if known.count("count"):
        yield _known_keys(known)
    lost = status.count("access_log_dropped")
    if lost:
        yield (Cell(f"access log: {several(lost, 'line')} lost", Tone.WARNING),)


def _known_keys(keys: UntrustedJson) -> Line:
    """How far back this process remembers."""
    oldest, held = keys.number("oldest_seconds"), keys.count("held")
    age = "" if oldest is None else f", the oldest of {span(oldest)} ago"
    return (
        Cell(f"known keys: {keys.count('count')}{age}, "),
        Cell(f"{held} held", Tone.WARNING if held else Tone.PLAIN),
    )


def _store(store: UntrustedJson) -> Line:
    state = store.text("state")
    errors = sum(count for _, count in store.part("errors").counts())
    return (
        Cell("store: "),
        Cell(state, Tone.GOOD if state == "up" else Tone.BAD),
        Cell(", "),
        Cell(several(errors, "error"), Tone.WARNING if errors else Tone.PLAIN),
    )


# Tables: a column knows its cell, and says None where it has nothing to show.

_Named = tuple[str, UntrustedJson]


@dataclass(frozen=True, slots=True)
class _Field:
    heading: str
    cell: Callable[[UntrustedJson], Cell | None]
    is_text: bool = False


def _table(title: str, who: str, members: Sequence[_Named], fields: Sequence[_Field]) -> Table:
    """A row for each member, a column for each field that any of them has."""
    shown = [
        (field, cells)
        for field in fields
        if any(cells := [field.cell(told) for _, told in members])
    ]
    columns = [Column(who, is_text=True)]
    columns += [Column(field.heading, is_text=field.is_text) for field, _ in shown]
    table = Table(title, columns)
    if shown:
        for at, (name, _) in enumerate(members):
            table.rows.append([Cell(printable(name)), *(cells[at] or _DASH for _, cells in shown)])
    return table


def _having(part: str, members: Iterator[_Named] | Sequence[_Named]) -> list[_Named]:
    """Those of *members* that have such a part."""
    return [(name, told) for name, told in members if part in told]


# All that happened so far.


def _requests(route: UntrustedJson) -> int:
    return sum(count for _, count in route.part("requests").counts())


def _error_rate(route: UntrustedJson) -> Cell:
    errors, requests = route.count("errors"), _requests(route)
    if not requests:
        return _DASH
    if not errors:
        tone = Tone.GOOD
    else:
        tone = Tone.BAD if errors / requests >= _MANY_ERRORS else Tone.WARNING
    return Cell(share(errors, requests), tone)


def _retries(route: UntrustedJson) -> Cell | None:
    return Cell(short(route.count("retries"))) if "retries" in route else None


def _worked(route: UntrustedJson) -> Cell | None:
    """How many of the retries ended well."""
    if "retries" not in route:
        return None
    retries, recovered = route.count("retries"), route.count("recovered")
    if not retries:
        return _DASH
    if not recovered:
        tone = Tone.BAD
    else:
        tone = Tone.GOOD if recovered / retries >= _FEW_RECOVERIES else Tone.WARNING
    return Cell(share(recovered, retries), tone)


def _quantiles(figures: UntrustedJson) -> Cell:
    """The median, and what 95 of 100 stay below."""
    median, most = figures.number("p50"), figures.number("p95")
    return _DASH if median is None or most is None else Cell(f"{brief(median)}/{brief(most)}")


def _waits(route: UntrustedJson) -> Cell | None:
    return _quantiles(route.part("wait_ms")) if "retries" in route else None


def _duplicates(route: UntrustedJson) -> Cell | None:
    """How many of those with a key got another one's result."""
    if "idempotency" not in route:
        return None
    results = dict(route.part("idempotency").counts())
    again = results.get("replayed", 0) + results.get("joined", 0)
    return Cell(share(again, sum(results.values())))


_TOTALS = (
    _Field("requests", lambda route: Cell(short(_requests(route)))),
    _Field("errors", _error_rate),
    _Field("retries", _retries),
    _Field("worked", _worked),
    _Field("waits p50/p95", _waits),
    _Field("duplicates", _duplicates),
)


# What goes on.


def _waiting(told: UntrustedJson) -> Cell | None:
    if "throttle" not in told:
        return None
    waiting = told.part("throttle").count("waiting")
    return Cell(short(waiting), Tone.WARNING if waiting else Tone.PLAIN)


def _paused(told: UntrustedJson) -> Cell | None:
    """For how long the upstream asked to be left alone."""
    if "throttle" not in told:
        return None
    throttle = told.part("throttle")
    if not throttle.count("paused"):
        return Cell("no")
    left = throttle.number("paused_for_seconds") or 0.0
    return Cell(f"for {brief(left * 1000)}", Tone.WARNING)


def _decided(word: str, tone: Tone = Tone.PLAIN) -> _Field:
    def cell(told: UntrustedJson) -> Cell:
        count = told.part("throttle").count(word)
        return Cell(short(count), tone if count else Tone.PLAIN)

    return _Field(word, cell)


_LINE = (_Field("queue", _waiting), _Field("paused", _paused))
_THROTTLES = (
    _decided("passed"),
    _decided("delayed"),
    _decided("refused", Tone.WARNING),
    *_LINE,
    _Field("waits p50/p95", lambda told: _quantiles(told.part("throttle").part("wait_ms"))),
)


def _throttled(routes: Sequence[_Named], upstreams: UntrustedJson) -> list[_Named]:
    """Routes and upstreams that have a throttle; one may be called as the other is."""
    return [
        *((f"route {name}", told) for name, told in _having("throttle", routes)),
        *((f"upstream {name}", told) for name, told in _having("throttle", upstreams.members())),
    ]


_BREAKERS = {"closed": Tone.GOOD, "half_open": Tone.WARNING, "open": Tone.BAD}


def _breaker(told: UntrustedJson) -> Cell | None:
    word = told.text("breaker")
    return Cell(word.replace("_", "-"), _BREAKERS.get(word, Tone.PLAIN)) if word else None


def _budget(upstream: UntrustedJson) -> Cell | None:
    """Retries that would be allowed now."""
    left = upstream.number("budget_remaining")
    return None if left is None else Cell(f"{left:.0f}", Tone.GOOD if left >= 1 else Tone.BAD)


def _now(upstreams: UntrustedJson) -> tuple[_Field, ...]:
    def first(route: UntrustedJson) -> UntrustedJson:
        """The route's own upstream; another one only stands in for it."""
        names = route.texts("upstreams")
        return upstreams.part(names[0]) if names else UntrustedJson(None)

    return (
        _Field("in flight", lambda route: Cell(short(route.count("in_flight")))),
        *_LINE,
        _Field("breaker", lambda route: _breaker(first(route))),
        _Field("budget", lambda route: _budget(first(route)) if "retries" in route else None),
    )


# Failures.


def _failed(route: UntrustedJson) -> bool:
    return any(sum(_endings(route, category).values()) for category in _CATEGORIES)


def _endings(route: UntrustedJson, category: str) -> dict[str, int]:
    return dict(route.part("failures").part(category).counts())


def _category(name: str, tone: Tone) -> _Field:
    def cell(route: UntrustedJson) -> Cell:
        count = sum(_endings(route, name).values())
        return Cell(short(count), tone if count else Tone.GOOD)

    return _Field(name, cell)


def _which(route: UntrustedJson) -> Cell:
    """Kinds and statuses, the most frequent first."""
    counts: Counter[str] = Counter()
    for category in _CATEGORIES:
        counts.update(_endings(route, category))
    return Cell(", ".join(f"{ending} x{short(count)}" for ending, count in counts.most_common()))


_CATEGORIES = ("transient", "permanent")
_FAILED = (
    _category("transient", Tone.WARNING),
    _category("permanent", Tone.BAD),
    _Field("which", _which, is_text=True),
)


def _letters(name: str, tone: Tone) -> Callable[[UntrustedJson], Cell]:
    def cell(route: UntrustedJson) -> Cell:
        count = route.part("dead_letters").count(name)
        return Cell(short(count), tone if count else Tone.GOOD)

    return cell


def _gone(name: str) -> Callable[[UntrustedJson], Cell | None]:
    """A column that is there once there is something in it: nobody is to look for it."""

    def cell(route: UntrustedJson) -> Cell | None:
        count = route.part("dead_letters").count(name)
        return Cell(short(count), Tone.BAD) if count else None

    return cell


_LETTERS = (
    _Field("waiting", _letters("waiting", Tone.BAD)),
    _Field("can be replayed", _letters("replayable", Tone.WARNING)),
    _Field("lost", _gone("lost")),
    _Field("expired", _gone("expired")),
)


# Upstreams.


def _addresses(addresses: UntrustedJson) -> Table:
    """A row for each address of each upstream."""
    table = Table(
        "Upstreams",
        (
            Column("upstream", is_text=True),
            Column("address", is_text=True),
            Column("state", is_text=True),
            Column("open"),
            Column("idle"),
        ),
    )
    for name, _ in addresses.members():
        for address in addresses.parts(name):
            failing = address.is_true("failing")
            state = Cell("failing", Tone.BAD) if failing else Cell("good", Tone.GOOD)
            table.rows.append(
                (
                    Cell(printable(name)),
                    Cell(address.text("address")),
                    _breaker(address) or state,
                    Cell(short(address.count("open"))),
                    Cell(short(address.count("idle"))),
                )
            )
    return table


_WORKERS = {"ready": Tone.GOOD, "starting": Tone.WARNING, "silent": Tone.BAD}


def _workers(workers: Sequence[UntrustedJson]) -> Table:
    """A row for each, where there are several."""
    table = Table(
        "Workers",
        (
            Column("worker"),
            Column("process"),
            Column("state", is_text=True),
            Column("up"),
            Column("connections"),
        ),
    )
    for worker in workers:
        state = worker.text("state")
        table.rows.append(
            (
                Cell(str(worker.count("number"))),
                Cell(str(worker.count("pid"))),
                Cell(state, _WORKERS.get(state, Tone.PLAIN)),
                Cell(span(worker.number("uptime_seconds") or 0.0)),
                Cell(short(worker.count("connections"))),
            )
        )
    return table
