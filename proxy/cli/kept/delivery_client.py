"""Client of the deliveries at the admin listener: finds them, and has them sent now."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

import click

from proxy.cli.admin_client import AdminClient, AdminResponse
from proxy.cli.kept.dead_letter_client import some_ids
from proxy.cli.kept.many_at_once import counted, routes_in_force
from proxy.cli.questions import STOPPED
from proxy.cli.render.progress import Step, progress
from proxy.cli.render.screens import print_line
from proxy.cli.render.tables import Cell, Tone
from proxy.cli.status_client import unknown_route
from proxy.cli.untrusted_json import UntrustedJson, legible

PAGE_SIZE = 1000
"""Deliveries that the listener returns at a time."""
_OK = 200
_TIMEOUT = 15.0
_MAX_BYTES = 64 * 1024 * 1024
_CAN_BE_SENT = ("waiting", "retrying", "failed")
"""States of a delivery that a retry can send."""
_WANTS_FORCE = "delivery_may_have_run"
_ERROR_TEXTS = {
    "no_delivery": "there is no such delivery: it has ended and its time is over, or another "
    "machine has it",
    "deliveries": "the file of the deliveries does not answer: see the proxy's log, then try again",
    _WANTS_FORCE: "it may have run and may not run twice; find out, then drop its dead letter "
    "or use --force",
}


@dataclass(frozen=True, slots=True)
class DeliveryFilter:
    """Which deliveries a command is about; None stands for all."""

    route: str | None = None
    state: str | None = None
    reason: str | None = None

    def path(self, **others: object) -> str:
        """Return the path of the list."""
        given = {"route": self.route, "state": self.state, "why": self.reason, **others}
        query = {name: value for name, value in given.items() if value is not None}
        return f"/deliveries?{urlencode(query, quote_via=quote)}"


def request_deliveries(client: AdminClient, method: str, path: str) -> AdminResponse:
    """Send a request and return its response; raise an error that says what to do if it failed."""
    response = client.send(method, path, timeout=_TIMEOUT, max_bytes=_MAX_BYTES)
    if response.status == _OK and response.content:
        return response
    raise click.ClickException(error_text(client, response))


def error_text(client: AdminClient, response: AdminResponse) -> str:
    """Return the error text for a response that is an error."""
    if response.problem.startswith("delivery_") and response.problem not in _ERROR_TEXTS:
        return response.text("detail")
    return _ERROR_TEXTS.get(response.problem) or client.error_for(response).message


def all_to_send(client: AdminClient, which: DeliveryFilter) -> list[UntrustedJson]:
    """Return all deliveries that a retry can send, the oldest first of each state."""
    states = _CAN_BE_SENT if which.state is None else (which.state,)
    return [
        delivery
        for state in states
        for delivery in _all(client, DeliveryFilter(which.route, state, which.reason))
    ]


def _all(client: AdminClient, which: DeliveryFilter) -> Iterator[UntrustedJson]:
    after: str | None = None
    while True:
        path = which.path(order="oldest", limit=PAGE_SIZE, after=after)
        page = request_deliveries(client, "GET", path)
        yield from page.parts("deliveries")
        after = page.raw_text("next")
        if after is None:
            return


def describe(deliveries: Sequence[UntrustedJson]) -> str:
    """Describe how many there are, of which routes and in which states."""
    routes = Counter(legible(each.text("route")) for each in deliveries)
    states = Counter(each.text("state") for each in deliveries)
    noun = "delivery" if len(deliveries) == 1 else "deliveries"
    return f"{len(deliveries)} {noun} ({counted(routes)}; {counted(states)})"


def no_deliveries(client: AdminClient, which: DeliveryFilter) -> str:
    """Say why there are none; raise if there is no such route."""
    routes, route = routes_in_force(client), which.route
    text = "no deliveries" if route is None else f"no deliveries of route {legible(route)}"
    if not routes or which.state or which.reason:
        return text
    handing_off = [name for name, each in routes.items() if "when" in each.part("hand_off")]
    if route is not None and route not in routes:
        raise click.ClickException(unknown_route(route, list(routes)))
    if route is None and not handing_off:
        return f"{text}: no route hands off, write hand_off: true in a route to change that"
    if route is not None and route not in handing_off:
        return f"{text}: it does not hand off, write hand_off: true in it"
    return text


@dataclass(slots=True)
class _Count:
    """What has become of many deliveries so far."""

    due: int = 0
    """Deliveries that are sent now, or would be in a dry run."""
    wants_force: int = 0
    others: int = 0
    under_way: str = ""
    """The delivery that the proxy is asked for just now."""

    @property
    def done(self) -> int:
        return self.due + self.wants_force + self.others + bool(self.under_way)


@dataclass(frozen=True, slots=True)
class RetryProgress:
    """Has deliveries sent now, with the given options, and prints the progress."""

    force: bool
    dry_run: bool
    client: AdminClient
    plain_text: bool
    as_json: bool

    def retry_one(self, delivery_id: str) -> int:
        """Have a delivery sent now; return the exit status: 0 if it is, or would be."""
        response = self._send(delivery_id)
        is_due = response.status == _OK
        if self.as_json:
            click.echo(json.dumps(response.content))
        else:
            print_line(self._result(response), plain_text=self.plain_text, is_error=not is_due)
        return int(not is_due)

    def retry_all(self, ids: Sequence[str]) -> int:
        """Have deliveries sent now, in order; return the exit status: 0 if all are.

        Ctrl-C ends it between two of them. Then, and if the proxy does not answer any more, it is
        told what is done and what is not.
        """
        count = _Count()
        try:
            if self.as_json:
                self._retry_each(ids, count)
            else:
                with progress("asking", len(ids), plain_text=self.plain_text) as step:
                    self._retry_each(ids, count, step)
        except KeyboardInterrupt:
            self._tell_rest(ids, count, "stopped")
            return STOPPED
        except click.ClickException as error:
            self._tell_rest(ids, count, "the proxy does not answer")
            error.show()
            return 1
        if not self.as_json:
            tone = Tone.GOOD if count.due == len(ids) else Tone.WARNING
            print_line(Cell(self._total(ids, count), tone), plain_text=self.plain_text)
        return int(count.due < len(ids))

    def _retry_each(self, ids: Sequence[str], count: _Count, step: Step | None = None) -> None:
        for delivery_id in ids:
            count.under_way = delivery_id
            response = self._send(delivery_id)
            count.under_way = ""
            if response.status == _OK:
                count.due += 1
            elif response.problem == _WANTS_FORCE:
                count.wants_force += 1
            elif response.problem:
                count.others += 1
            else:
                raise self.client.error_for(response)
            if step is None:
                click.echo(json.dumps(response.content))
                continue
            result = self._result(response)
            step(Cell(f"{delivery_id} {result.text}", result.tone))

    def _total(self, ids: Sequence[str], count: _Count) -> str:
        done = "would be sent" if self.dry_run else "are sent now"
        parts = [f"{count.due} of {len(ids)} {done}"]
        if count.wants_force:
            parts.append(f"{count.wants_force} left out: they may have run, --force sends them")
        if count.others:
            parts.append(f"{count.others} not")
        return "; ".join(parts) + ("; nothing was sent" if self.dry_run else "")

    def _tell_rest(self, ids: Sequence[str], count: _Count, cause: str) -> None:
        rest = ids[count.done :]
        lines = [f"{cause}: {self._total(ids, count)}; {len(rest)} not tried"]
        if count.under_way and not self.dry_run:
            lines.append(f"may be sent: {count.under_way}")
        if rest:
            lines.append(f"not tried: {some_ids(rest)}")
        for line in lines:
            print_line(Cell(line, Tone.WARNING), plain_text=self.plain_text, is_error=True)

    def _send(self, delivery_id: str) -> AdminResponse:
        body = json.dumps({"force": self.force, "dry_run": self.dry_run}).encode()
        path = f"/deliveries/{delivery_id}/retry"
        return self.client.send("POST", path, timeout=_TIMEOUT, body=body)

    def _result(self, response: AdminResponse) -> Cell:
        if response.status == _OK:
            text = "would be sent" if self.dry_run else "is sent now"
            return Cell(text, Tone.GOOD)
        would = "would not be" if self.dry_run else "not"
        return Cell(f"{would} sent: {error_text(self.client, response)}", Tone.WARNING)
