"""The entry point of the command: ``holdfast``, or ``python -m proxy``."""

import signal


def main() -> None:
    """Run the command.

    Ctrl-C ends the process at once, and without a word, until the command is ready to be
    interrupted: an exception in the middle of an import would end in a traceback.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from proxy.cli import main as command  # noqa: PLC0415 - see above

    command(prog_name="holdfast")


if __name__ == "__main__":
    main()
