"""Client of replays: sends dead letters again and prints the results."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import click

from proxy.cli.admin_client import AdminClient, AdminResponse
from proxy.cli.dead_letter_client import error_text
from proxy.cli.render.progress import progress
from proxy.cli.render.screens import print_line
from proxy.cli.render.tables import Cell, Tone

_TIMEOUT = 3600.0
"""Seconds: a replay takes up to its route's timeout, and some routes have none."""


_WOULD_BE_SENT = "would_be_sent"


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """Replays dead letters with the given options, and prints the progress."""

    headers: Sequence[tuple[str, str]]
    force: bool
    dry_run: bool
    client: AdminClient
    plain_text: bool
    as_json: bool

    def replay_one(self, dead_letter_id: str) -> bool:
        """Replay a dead letter; return whether it succeeded, or would be sent in a dry run."""
        response = self._send(dead_letter_id)
        is_gone = _is_good(response)
        if self.as_json:
            click.echo(json.dumps(response.content))
        else:
            print_line(self._result(response), plain_text=self.plain_text, is_error=not is_gone)
        return is_gone

    def replay_all(self, dead_letter_ids: Sequence[str]) -> bool:
        """Replay dead letters in order; return whether all succeeded, or would be sent."""
        if self.as_json:
            are_gone = [self.replay_one(dead_letter_id) for dead_letter_id in dead_letter_ids]
            return all(are_gone)
        gone, total = 0, len(dead_letter_ids)
        verb = "asking" if self.dry_run else "sending"
        with progress(verb, total, plain_text=self.plain_text) as step:
            for dead_letter_id in dead_letter_ids:
                response = self._send(dead_letter_id)
                gone += _is_good(response)
                result = self._result(response)
                step(Cell(f"{dead_letter_id} {result.text}", result.tone))
        stay = total - gone
        text = f"{gone} of {total} letters deleted, {stay} kept"
        if self.dry_run:
            text = f"{gone} of {total} would be sent, {stay} would not; nothing was sent"
        print_line(Cell(text, Tone.WARNING if stay else Tone.GOOD), plain_text=self.plain_text)
        return not stay

    def _send(self, dead_letter_id: str) -> AdminResponse:
        content = {"headers": self.headers, "force": self.force, "dry_run": self.dry_run}
        path, body = f"/dead-letters/{dead_letter_id}/replay", json.dumps(content).encode()
        return self.client.send("POST", path, timeout=_TIMEOUT, body=body)

    def _result(self, response: AdminResponse) -> Cell:
        """Format the result of a replay on one line."""
        if response.text("result") == _WOULD_BE_SENT:
            return Cell("would be sent", Tone.GOOD)
        if _is_good(response):
            status = response.count("status")
            if not response.count("attempts"):
                text = f"not sent: its key has a result already ({status}), the letter is deleted"
                return Cell(text, Tone.GOOD)
            return Cell(f"sent, the upstream answered {status}", Tone.GOOD)
        if not response.text("result"):
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


def _is_good(response: AdminResponse) -> bool:
    return response.text("result") in {"succeeded", _WOULD_BE_SENT}
