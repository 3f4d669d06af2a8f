"""What commands about dead letters say of an answer that is no good one."""

from collections.abc import Mapping

import click

from proxy.cli.admin import Answer, refused

_OK = 200


def good(answer: Answer, admin: str, token: str | None, words: Mapping[str, str]) -> Answer:
    """*answer*, if it is a good one; else an error that says what to do.

    *words*: what to say about a problem, by its reason.
    """
    if answer.status == _OK and answer.content:
        return answer
    raise click.ClickException(complaint(answer, admin, token, words))


def complaint(answer: Answer, admin: str, token: str | None, words: Mapping[str, str]) -> str:
    """What is wrong with an answer that is no good one."""
    return words.get(answer.problem) or refused(admin, token, answer).message
