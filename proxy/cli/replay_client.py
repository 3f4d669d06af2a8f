"""Sending dead letters again, and saying what became of them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import click

from proxy.cli.admin_client import AdminResponse, ask
from proxy.cli.dead_letter_client import complaint
from proxy.cli.render.progress import progress
from proxy.cli.render.screens import say
from proxy.cli.render.tables import Cell, Tone

_PATIENCE = 3600.0
"""Seconds: a replay takes as long as its route's timeout, and some have none."""


_WOULD_BE_SENT = "would_be_sent"


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """How letters are sent again, and how that is shown."""

    headers: Sequence[tuple[str, str]]
    force: bool
    dry_run: bool
    admin: str
    token: str | None
    plain_text: bool
    as_json: bool

    def one(self, letter: str) -> bool:
        """Send it; whether it is gone, or would be sent."""
        answer = self._send(letter)
        is_gone = _is_good(answer)
        if self.as_json:
            click.echo(json.dumps(answer.content))
        else:
            say(self._result(answer), plain_text=self.plain_text, is_error=not is_gone)
        return is_gone

    def all(self, letters: Sequence[str]) -> bool:
        """Send one after another; whether all of them are gone, or would be sent."""
        if self.as_json:
            are_gone = [self.one(letter) for letter in letters]
            return all(are_gone)
        gone = 0
        doing = "asking" if self.dry_run else "sending"
        with progress(doing, len(letters), plain_text=self.plain_text) as step:
            for letter in letters:
                answer = self._send(letter)
                gone += _is_good(answer)
                result = self._result(answer)
                step(Cell(f"{letter} {result.text}", result.tone))
        stay = len(letters) - gone
        text = f"{gone} of {len(letters)} are gone, {stay} left"
        if self.dry_run:
            text = f"{gone} of {len(letters)} would be sent, {stay} would not; nothing was sent"
        say(Cell(text, Tone.WARNING if stay else Tone.GOOD), plain_text=self.plain_text)
        return not stay

    def _send(self, letter: str) -> AdminResponse:
        return ask(
            self.admin,
            "POST",
            f"/dead-letters/{letter}/replay",
            token=self.token,
            patience=_PATIENCE,
            body=json.dumps(
                {"headers": self.headers, "force": self.force, "dry_run": self.dry_run}
            ).encode(),
        )

    def _result(self, answer: AdminResponse) -> Cell:
        """What became of it in one line."""
        told = answer.told
        if told.text("result") == _WOULD_BE_SENT:
            return Cell("would be sent", Tone.GOOD)
        if _is_good(answer):
            status = told.count("status")
            if not told.count("attempts"):
                text = f"not sent: its key has a result already ({status}), the letter is gone"
                return Cell(text, Tone.GOOD)
            return Cell(f"sent, the upstream answered {status}", Tone.GOOD)
        if not told.text("result"):
            would = "would not be" if self.dry_run else "not"
            return Cell(f"{would} sent: {self._why_not(answer)}", Tone.WARNING)
        ran = ", it may have run" if told.is_true("may_have_run") else ""
        record = told.text("record")
        hint = f" (its key: holdfast keys show {record})" if record else ""
        text = f"{told.text('result')}: {told.text('error')}{ran}: {told.text('detail')}{hint}"
        return Cell(text, Tone.BAD)

    def _why_not(self, answer: AdminResponse) -> str:
        match answer.problem:
            case "letter_may_have_run":
                return "it may have run; find out, then drop it or use --force"
            case "letter_uncertain":
                return (
                    "a replay of it was interrupted by a crash and may have run; find out, then "
                    "drop it or use --force"
                )
            case "letter_replaying" | "letter_without_body" | "letter_without_route":
                return answer.text("detail")
        return complaint(answer, self.admin, self.token)


def _is_good(answer: AdminResponse) -> bool:
    return answer.text("result") in {"succeeded", _WOULD_BE_SENT}
