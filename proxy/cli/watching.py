"""``status --watch`` on a terminal: asks again and again, draws what came, and obeys keys.

The questions are asked in a thread of their own, so that a proxy that does not answer never keeps
a key waiting. When there is no answer the last numbers stay, with their age; a later answer
replaces them.
"""

import os
import select
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from threading import Event, Thread
from types import FrameType
from typing import NoReturn

import click

from proxy.cli.keyboard import Keyboard, KeyPress
from proxy.cli.render.full_screen import FullScreen, View, body_height, frame
from proxy.cli.render.number_format import long_duration
from proxy.cli.render.status_page import Order, status_page
from proxy.cli.render.tables import Cell, Line, Tone, page_lines, wrap_line
from proxy.cli.untrusted_json import UntrustedJson, legible, printable
from proxy.core.clock import SystemClock

Ask = Callable[[], dict[str, object]]
"""Returns the content of ``/status``; raises click's errors."""

_INTERVAL = 1.0
"""Seconds between two questions."""
_SILENT_AFTER = 3.0
"""Seconds without an answer after which the numbers are called old."""
_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_ORDERS = list(Order)
_clock = SystemClock()


class _Poller(Thread):
    """Asks every second, and wakes the loop with each answer."""

    def __init__(self, ask: Ask, wake: Callable[[], None]) -> None:
        super().__init__(name="status", daemon=True)
        self._ask = ask
        self._wake = wake
        self._ended = Event()
        self.answers: list[dict[str, object] | str] = []
        """What came and was not yet taken: contents, or error messages."""

    def run(self) -> None:
        while not self._ended.wait(_INTERVAL):
            try:
                self.answers.append(self._ask())
            except click.ClickException as error:  # the proxy may be back in a moment
                self.answers.append(error.message)
            self._wake()

    def end(self) -> None:
        """Ask no more. A question that is under way ends with the process."""
        self._ended.set()


class StatusWatch:
    """What is on the screen, and what it is made of."""

    def __init__(
        self, first: dict[str, object], *, of: str, order: Order, only: Sequence[str]
    ) -> None:
        self._of = of
        self._content = UntrustedJson(first)
        self._before: UntrustedJson | None = None
        self._answered = _clock.monotonic()
        self._answered_at = _now()
        self._error = ""
        self._order = order
        self._only = only
        self._view = View()
        self._laid_out: tuple[int, list[Line]] | None = None
        """The lines of the page, and the width that they were made for."""

    def take(self, answer: dict[str, object] | str) -> None:
        """Show another answer, or the message of an error."""
        if isinstance(answer, str):
            self._error = legible(answer)
            return
        self._before, self._content = self._content, UntrustedJson(answer)
        self._answered, self._answered_at = _clock.monotonic(), _now()
        self._error = ""
        self._laid_out = None

    def press(self, key: KeyPress, size: os.terminal_size) -> None:
        """Do what *key* asks for."""
        if key is KeyPress.SORT:
            self._order = _ORDERS[(_ORDERS.index(self._order) + 1) % len(_ORDERS)]
            self._laid_out = None
            self._view.first = 0
            return
        head = wrap_line(self._top(), size.columns)
        self._view.move(key, len(self._lines(size.columns)), body_height(head, size))

    def screen(self, size: os.terminal_size) -> list[Line]:
        """Return all lines of the screen."""
        hints = ("q: quit", f"s: sorted by {self._order}", "arrows PgUp PgDn Home End: scroll")
        return frame(self._top(), self._lines(size.columns), hints, self._view, size)

    def _top(self) -> Line:
        age = _clock.monotonic() - self._answered
        clock = Cell(_now(), Tone.TITLE)
        if not self._error and age < _SILENT_AFTER:
            return clock, Cell(f"  {self._of}, every second")
        reason = self._error or f"no answer from {self._of}"
        old = f"  numbers of {self._answered_at}, {long_duration(age)} ago: {reason}"
        return clock, Cell(old, Tone.BAD)

    def _lines(self, width: int) -> list[Line]:
        if self._laid_out is None or self._laid_out[0] != width:
            page = status_page(
                self._content, before=self._before, order=self._order, only=self._only
            )
            self._laid_out = (width, page_lines(page, width, wraps=True))
        return self._laid_out[1]


def _now() -> str:
    """Return the time of day with its zone."""
    return printable(f"{datetime.now().astimezone():%H:%M:%S %Z}")


def watch(ask: Ask, *, of: str, order: Order, only: Sequence[str], has_colours: bool) -> None:
    """Show the status until ``q`` or Ctrl-C; the terminal is left as it was, however it ends.

    *of* names the proxy. That nobody answers is an error at first, and a line on the screen later.
    """
    shown = StatusWatch(ask(), of=of, order=order, only=only)
    with ExitStack() as stack:
        awake = stack.enter_context(_wakeable())
        poller = _Poller(ask, awake.wake)
        stack.callback(poller.end)
        screen = stack.enter_context(FullScreen(has_colours=has_colours))
        keyboard = stack.enter_context(Keyboard())
        stack.enter_context(_suspendable(screen, keyboard))
        poller.start()
        while True:
            screen.draw(shown.screen(screen.size))
            for key in awake.wait(keyboard):
                if key is KeyPress.QUIT:
                    return
                shown.press(key, screen.size)
            while poller.answers:
                shown.take(poller.answers.pop(0))


class _Awake:
    """Waits for keys, answers and signals at once, for at most a second: the clock ticks."""

    def __init__(self, ours: socket.socket, theirs: socket.socket) -> None:
        self._ours = ours
        self._theirs = theirs

    def wake(self) -> None:
        """End the wait; for any thread."""
        with suppress(OSError):  # full: it is awake; closed: nothing waits any more
            self._theirs.send(b"\0")

    def wait(self, keyboard: Keyboard) -> list[KeyPress]:
        """Return the keys that were pressed; none if something else has happened."""
        inputs = [self._ours.fileno()]
        if keyboard.descriptor is not None:
            inputs.append(keyboard.descriptor)
        readable, _, _ = select.select(inputs, [], [], _INTERVAL)
        if self._ours.fileno() in readable:
            self._ours.recv(4096)
        return keyboard.keys() if keyboard.descriptor in readable else []


@contextmanager
def _wakeable() -> Iterator[_Awake]:
    """Let signals end waits, and SIGTERM and SIGHUP end the program in order."""
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.settimeout(0)
    before = {number: signal.signal(number, _end) for number in _ENDING_SIGNALS}
    # Without a handler of its own a changed size would not end a wait.
    before[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, _ignore)
    wakeup = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    try:
        yield _Awake(ours, theirs)
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        ours.close()
        theirs.close()


def _end(number: int, _: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: that the signal came is enough."""


@contextmanager
def _suspendable(screen: FullScreen, keyboard: Keyboard) -> Iterator[None]:
    """Give the terminal back while Ctrl-Z stops the program, and take it again after ``fg``."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        keyboard.__exit__()
        screen.__exit__()
        os.kill(os.getpid(), signal.SIGSTOP)
        screen.__enter__()
        keyboard.__enter__()

    before = signal.signal(signal.SIGTSTP, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTSTP, before)
