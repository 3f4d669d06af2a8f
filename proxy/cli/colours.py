"""Tables in colour, for terminals. The only file that needs ``rich``."""

from collections.abc import Iterator

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table as RichTable
from rich.text import Text

from proxy.cli.overview import Line, Overview, overview
from proxy.cli.tables import Table, Tone, cut, widths
from proxy.cli.told import Told

_HEADING = "bold"


class ColourScreen:
    """Draws on a terminal; while it is entered, each drawing takes the place of the last."""

    def __init__(self) -> None:
        # Names are shown as they are, whatever brackets or numbers there are in them.
        self._console = Console(highlight=False, markup=False, emoji=False)
        self._live: Live | None = None

    def __enter__(self) -> None:
        self._live = Live(console=self._console, auto_refresh=False)
        self._live.start()

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, status: dict[str, object]) -> None:
        """Draw."""
        self._draw(Group(*self._drawn(overview(Told(status)))))

    def complain(self, text: str) -> None:
        """Say why there is nothing to draw."""
        self._draw(Text(text, Tone.BAD.value))

    def _draw(self, what: RenderableType) -> None:
        if self._live is None:
            self._console.print(what)
        else:
            self._live.update(what, refresh=True)

    def _drawn(self, shown: Overview) -> Iterator[RenderableType]:
        for line in shown.lines:
            yield _line(line)
        for table in shown.tables:
            yield Text()
            yield Text(table.title, _HEADING)
            yield _table(table, self._console.width)


def _line(line: Line) -> Text:
    return Text.assemble(*((cell.text, cell.tone.value) for cell in line))


def _table(table: Table, room: int) -> RichTable:
    # Between two columns there are two characters, as in plain tables.
    drawn = RichTable(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), safe_box=True
    )
    wide = widths(table, room)
    for column, width in zip(table.columns, wide, strict=True):
        justify = "left" if column.is_text else "right"
        drawn.add_column(column.heading, justify=justify, width=width, no_wrap=True)  # type: ignore[arg-type]  # two of its words
    for row in table.rows:
        drawn.add_row(
            *(
                Text(cut(cell.text, width), cell.tone.value)
                for cell, width in zip(row, wide, strict=True)
            )
        )
    return drawn
