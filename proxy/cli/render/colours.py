"""Pages and progress bars in colour, for terminals. The only module that needs ``rich``."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from proxy.cli.render.tables import Cell, Line, Page, Tone, page_lines
from proxy.cli.untrusted_json import UntrustedJson


class ColourScreen:
    """Draws pages on a terminal, one below the other."""

    def __init__(self, render: Callable[[UntrustedJson], Page]) -> None:
        self._render = render
        # Names are shown literally: rich would interpret brackets and highlight numbers.
        self._console = Console(highlight=False, markup=False, emoji=False)

    def __enter__(self) -> None:
        """Go on showing one page below the other."""

    def __exit__(self, *_: object) -> None:
        """Leave everything on the terminal."""

    def show(self, content: dict[str, object]) -> None:
        """Draw the page of *content*."""
        for line in page_lines(self._render(UntrustedJson(content)), self._console.width):
            # A long line stays one line, so that it can be copied.
            self._console.print(_line(line), soft_wrap=True)

    def show_error(self, text: str) -> None:
        """Draw *text*, the reason why there is no page, in the colour of errors."""
        self._console.print(Text(text, Tone.BAD.value), soft_wrap=True)


def _line(line: Line) -> Text:
    return Text.assemble(*((cell.text, cell.tone.value) for cell in line))


@contextmanager
def bar(what: str, total: int) -> Iterator[Callable[[Cell], None]]:
    """Show a bar that grows with each call; results that are not good are printed above it."""
    console = Console(highlight=False, markup=False, emoji=False)
    with Progress(console=console) as drawn:
        task = drawn.add_task(what, total=total)

        def step(done: Cell) -> None:
            if done.tone is not Tone.GOOD:
                console.print(Text(done.text, done.tone.value))
            drawn.advance(task)

        yield step
