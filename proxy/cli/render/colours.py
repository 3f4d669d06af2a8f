"""Pages and progress bars in colour, for terminals. The only module that needs ``rich``."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import Progress
from rich.table import Table as RichTable
from rich.text import Text

from proxy.cli.render.tables import Cell, Line, Page, Table, Tone, cut, widths
from proxy.cli.untrusted_json import UntrustedJson

_HEADING = "bold"


class ColourScreen:
    """Draws pages on a terminal; while entered, each page replaces the last one."""

    def __init__(self, render: Callable[[UntrustedJson], Page]) -> None:
        self._render = render
        # Names are shown literally: rich would interpret brackets and highlight numbers.
        self._console = Console(highlight=False, markup=False, emoji=False)
        self._live: Live | None = None

    def __enter__(self) -> None:
        self._live = Live(console=self._console, auto_refresh=False)
        self._live.start()

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, content: dict[str, object]) -> None:
        """Draw the page of *content*."""
        self._draw(Group(*self._drawn(self._render(UntrustedJson(content)))))

    def show_error(self, text: str) -> None:
        """Draw *text*, the reason why there is no page, in the colour of errors."""
        self._draw(Text(text, Tone.BAD.value))

    def _draw(self, what: RenderableType) -> None:
        if self._live is None:
            self._console.print(
                what, soft_wrap=True
            )  # a long line stays one line, so that it can be copied
        else:
            self._live.update(what, refresh=True)

    def _drawn(self, page: Page) -> Iterator[RenderableType]:
        for line in page.lines:
            yield _line(line)
        for number, table in enumerate(page.tables):
            if number or page.lines:
                yield Text()
            yield Text(table.title, _HEADING)
            yield _table(table, self._console.width)


def _line(line: Line) -> Text:
    return Text.assemble(*((cell.text, cell.tone.value) for cell in line))


def _table(table: Table, max_width: int) -> RichTable:
    # Two characters between two columns, as in plain tables.
    drawn = RichTable(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), safe_box=True
    )
    wide = widths(table, max_width)
    for column, width in zip(table.columns, wide, strict=True):
        justify = "left" if column.is_text else "right"
        drawn.add_column(column.heading, justify=justify, width=width, no_wrap=True)  # type: ignore[arg-type]  # both are literals that it accepts
    for row in table.rows:
        drawn.add_row(
            *(
                Text(cut(cell.text, width), cell.tone.value)
                for cell, width in zip(row, wide, strict=True)
            )
        )
    return drawn


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
