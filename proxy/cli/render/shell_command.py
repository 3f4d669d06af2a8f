"""Commands to paste into a shell, made of what an untrusted server says."""

import shlex

from proxy.cli.untrusted_json import UntrustedJson


def explain_command(request: UntrustedJson) -> str:
    """Return the ``holdfast explain`` of a request, quoted for a shell; empty if there is none.

    The program and the command are ours, and each argument is one word of the shell, whatever
    is in it. Where an argument has a character that a terminal would obey, or that cannot be seen,
    there is no command: it could be another one than it looks like.
    """
    arguments = request.texts("explain")
    if not arguments or not all(argument.isprintable() for argument in arguments):
        return ""
    return shlex.join(["holdfast", "explain", *arguments])
