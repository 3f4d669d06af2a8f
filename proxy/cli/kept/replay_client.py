"""Client of replays: sends dead letters again and prints the results."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import click

from proxy.cli.admin_client import AdminClient, AdminResponse
from proxy.cli.kept.dead_letter_client import error_text, some_ids
from proxy.cli.questions import STOPPED
from proxy.cli.render.progress import Step, progress
from proxy.cli.render.screens import print_line
from proxy.cli.render.tables import Cell, Tone

_TIMEOUT = 3600.0
"""Seconds: a replay takes up to its route's timeout, and some routes have none."""


_WOULD_BE_SENT = "would_be_sent"
_ALREADY_DONE = "already_done"
_GOOD = frozenset({"succeeded", _ALREADY_DONE, _WOULD_BE_SENT})
_KEY_STATES = {
    "done": "its key has a result already",
    "unstored": "it has run: its key is spent, and its result was not kept",
    "held": "its key is held; find out whether it ran, then release the key or drop the letter",
    "in_flight": "another request with its key is in flight",
}


@dataclass(slots=True)
class _Count:
    """What has become of many letters so far."""

    gone: int = 0
    """Letters that are deleted, or would be sent in a dry run."""
    kept: int = 0
    under_way: str = ""
    """The letter that the proxy is sending just now."""


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """Replays dead letters with the given options, and prints the progress."""

    headers: Sequence[tuple[str, str]]
    force: bool
    dry_run: bool
    client: AdminClient
    plain_text: bool
    as_json: bool

    def replay_one(self, dead_letter_id: str) -> int:
        """Replay a dead letter; return the exit status: 0 if it is gone, or would be sent."""
        response = self._send(dead_letter_id)
        is_gone = response.text("result") in _GOOD
        if self.as_json:
            click.echo(json.dumps(response.content))
        else:
            print_line(self._result(response), plain_text=self.plain_text, is_error=not is_gone)
        return int(not is_gone)

    def replay_all(self, dead_letter_ids: Sequence[str]) -> int:
        """Replay dead letters in order; return the exit status: 0 if all are gone.

        Ctrl-C ends it after what was begun. Then, and if the proxy does not answer any more, it
        is told what is done and what is not.
        """
        count = _Count()
        try:
            if self.as_json:
                self._replay_each(dead_letter_ids, count)
            else:
                verb = "asking" if self.dry_run else "sending"
                total = len(dead_letter_ids)
                with progress(verb, total, plain_text=self.plain_text) as step:
                    self._replay_each(dead_letter_ids, count, step)
        except KeyboardInterrupt:
            self._tell_rest(dead_letter_ids, count, "stopped")
            return STOPPED
        except click.ClickException as error:
            self._tell_rest(dead_letter_ids, count, "the proxy does not answer")
            error.show()
            return 1
        if not self.as_json:
            self._tell_end(len(dead_letter_ids), count)
        return int(bool(count.kept))

    def _replay_each(
        self, dead_letter_ids: Sequence[str], count: _Count, step: Step | None = None
    ) -> None:
        for dead_letter_id in dead_letter_ids:
            count.under_way = dead_letter_id
            response = self._send(dead_letter_id)
            count.under_way = ""
            is_gone = response.text("result") in _GOOD
            count.gone += is_gone
            count.kept += not is_gone
            if step is None:
                click.echo(json.dumps(response.content))
                continue
            result = self._result(response)
            step(Cell(f"{dead_letter_id} {result.text}", result.tone))

    def _tell_end(self, total: int, count: _Count) -> None:
        text = f"{count.gone} of {total} letters deleted, {count.kept} kept"
        if self.dry_run:
            text = (
                f"{count.gone} of {total} would be sent, {count.kept} would not; nothing was sent"
            )
        tone = Tone.WARNING if count.kept else Tone.GOOD
        print_line(Cell(text, tone), plain_text=self.plain_text)

    def _tell_rest(self, dead_letter_ids: Sequence[str], count: _Count, cause: str) -> None:
        """Tell what is done and what is not, each letter by its id."""
        begun = count.gone + count.kept + bool(count.under_way)
        rest = dead_letter_ids[begun:]
        done, not_done = ("would be sent", "would not") if self.dry_run else ("deleted", "kept")
        first = f"{cause}: {count.gone} of {len(dead_letter_ids)} letters {done}"
        lines = [f"{first}, {count.kept} {not_done}, {len(rest)} not tried"]
        if count.under_way and not self.dry_run:
            lines.append(
                f"may still be sent, the proxy does not stop it: {count.under_way} "
                f"(holdfast dlq show {count.under_way})"
            )
        if rest:
            lines.append(f"not tried: {some_ids(rest)}")
        for line in lines:
            print_line(Cell(line, Tone.WARNING), plain_text=self.plain_text, is_error=True)

    def _send(self, dead_letter_id: str) -> AdminResponse:
        content = {"headers": self.headers, "force": self.force, "dry_run": self.dry_run}
        path, body = f"/dead-letters/{dead_letter_id}/replay", json.dumps(content).encode()
        return self.client.send("POST", path, timeout=_TIMEOUT, body=body)

    def _result(self, response: AdminResponse) -> Cell:
        """Format the result of a replay on one line."""
        status = response.count("status")
        match response.text("result"):
            case "would_be_sent":
                return Cell("would be sent", Tone.GOOD)
            case "would_not_be_sent":
                reason = _KEY_STATES.get(response.text("key"), "its key is in use")
                return Cell(f"would not be sent: {reason}", Tone.WARNING)
            case "already_done":
                text = f"not sent: its key has a result already ({status}), the letter is deleted"
                return Cell(text, Tone.GOOD)
            case "succeeded":
                return Cell(f"sent, the upstream answered {status}", Tone.GOOD)
            case "":
                would = "would not be" if self.dry_run else "not"
                return Cell(f"{would} sent: {self._reason_not_sent(response)}", Tone.WARNING)
        ran = ", it may have run" if response.is_true("may_have_run") else ""
        record = response.text("record")
        hint = f" (its key: holdfast keys show {record})" if record else ""
        result, error = response.text("result"), response.text("error")
        text = f"{result}: {error}{ran}: {response.text('detail')}{hint}"
        return Cell(text, Tone.BAD)

    def _reason_not_sent(self, response: AdminResponse) -> str:
        match response.problem:
            case "letter_may_have_run":
                return "it may have run; find out, then drop it or use --force"
            case "letter_uncertain":
                return (
                    "a replay of it was interrupted by a crash and may have run; find out, then "
                    "drop it or use --force"
                )
            case "letter_replaying" | "letter_without_body" | "letter_without_route":
                return response.text("detail")
        return error_text(self.client, response)
