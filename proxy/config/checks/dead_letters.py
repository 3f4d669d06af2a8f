"""Checks of dead letters: methods, outcomes and bodies of a route, and the folder for them."""

from collections.abc import Sequence
from pathlib import Path

from proxy.config.checks.routes import check_methods
from proxy.config.diagnostics.diagnostics import Diagnostics
from proxy.config.read.effective import EffectiveSection
from proxy.config.source.files import is_folder
from proxy.config.values.outcomes import statuses_of
from proxy.policy.settings import REFUSALS, Match


def check_dead_letter(route: EffectiveSection, match: Match, diagnostics: Diagnostics) -> None:
    """Check methods, outcomes and bodies of a route that keeps dead letters."""
    if route.typed.mapping("dead_letter") is None:
        return
    instead = f"write methods: [{', '.join(match.methods)}] in it"
    check_methods(route, match, diagnostics, key="dead_letter", does="keeps", instead=instead)
    _check_list(route, diagnostics)
    _check_body(route, diagnostics)


def _check_list(route: EffectiveSection, diagnostics: Diagnostics) -> None:
    """Warn of an ``on`` that names no response: the built-in list that it replaces does."""
    items, listed = route.items("dead_letter.on"), route.values("dead_letter.on")
    if items is None or not listed or not route.writer("dead_letter.on"):
        return
    if not {"default", "refused"}.isdisjoint(listed) or any(map(statuses_of, listed)):
        return
    if REFUSALS in listed:
        instead = "write on: [default, refusals] to keep refusals, too"
    else:
        instead = "write on: [default, 500] (say), or leave it out: what got no response is kept"
    diagnostics.warn(
        items, "this list replaces the built-in one, so no response makes a dead letter, " + instead
    )


def _check_body(route: EffectiveSection, diagnostics: Diagnostics) -> None:
    """Warn of a ``max_body`` above ``buffer``: a body is kept in memory before it goes to disk."""
    largest, buffer = route.scalar("dead_letter.max_body"), route.scalar("buffer")
    if largest is None or buffer is None or not route.writer("dead_letter.max_body"):
        return
    if largest.value <= buffer.value:
        return
    diagnostics.warn(
        largest,
        f"{largest.written.bare} is above buffer {buffer.written.bare}"
        f"{route.named('dead_letter.max_body', 'buffer')}, and a body beyond that is not kept, "
        f"write a larger buffer or a smaller max_body",
    )


def check_state_dir(
    routes: Sequence[EffectiveSection], file: EffectiveSection, diagnostics: Diagnostics
) -> None:
    """Check that ``state_dir`` can be made, if a route keeps dead letters or deliveries."""
    folder = file.scalar("state_dir")
    policies = ("dead_letter", "hand_off")
    if folder is None or not any(route.typed.mapping(key) for route in routes for key in policies):
        return
    path = Path(folder.value)
    if is_folder(path):
        return
    if _exists(path):
        problem = "is a file, write the path of a folder"
    elif not is_folder(path.parent):
        problem = "has no folder to be made in, create that or correct the path"
    else:
        return
    diagnostics.fault(folder, f"{folder.written.bare} {problem}")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # such as a name that is too long
        return False
