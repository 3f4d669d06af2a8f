"""Keys of dead letters."""

from typing import Annotated

from annotated_types import MinLen

from proxy.config.schema.section import Section, described
from proxy.config.values.headers import HeaderName
from proxy.config.values.outcomes import OutcomeName
from proxy.config.values.paths import Method
from proxy.config.values.quantities import Duration, Size
from proxy.policy.settings import REFUSALS

_NO_DEAD_LETTER = "keeps no letter, write 7d (say), or dead_letter: false if that is meant"


_DeadLetterOutcomes = list[Annotated[str | int, OutcomeName("kept", (REFUSALS,))]]


class LetterHeaderKeys(Section):
    """Header fields of a request that failed for good."""

    belongs_to = "dead_letter.headers"

    drop: list[Annotated[str, HeaderName()]] = described(
        "Fields that are not written to disk, besides Proxy-Authorization, which never is; a "
        "replay is given them anew.",
        ["Authorization", "Proxy-Authorization", "Cookie", "X-Api-Key"],
    )


class DeadLetterKeys(Section):
    """Which requests that failed for good are kept, for a person to look at and send again."""

    belongs_to = "dead_letter"

    methods: Annotated[list[Annotated[str, Method()]], MinLen(1)] = described(
        "Requests of these methods are kept.", ["POST", "PUT", "PATCH", "DELETE"]
    )
    max_body: Annotated[int, Size()] = described(
        "Largest body that is kept, within the route's buffer; of a larger one the rest is kept, "
        "and cannot be sent again.",
        "1MiB",
    )
    on: Annotated[_DeadLetterOutcomes | None, MinLen(1)] = described(
        "After which responses, in the words of retry.on; refusals: what Holdfast refused itself. "
        "A request that failed without a response is kept in any case. Default, and what default "
        "stands for: the route's retry.on, or the built-in list.",
        None,
    )
    ttl: Annotated[float, Duration(zero=_NO_DEAD_LETTER)] = described(
        "How long a letter is kept; then it is deleted, and counted.", "7d"
    )
    headers: LetterHeaderKeys = described("Header fields that are kept or not.", {})
