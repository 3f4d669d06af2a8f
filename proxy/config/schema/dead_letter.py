"""Keys of dead letters."""

from collections.abc import Iterable

from proxy.config.schema.section import Key, ListOf, Section
from proxy.config.schema.shorthands import Switchable
from proxy.config.values.headers import HeaderName
from proxy.config.values.outcomes import OutcomeName
from proxy.config.values.paths import Method
from proxy.config.values.quantities import Duration, Size
from proxy.policy.settings import ALWAYS_DROPPED, REFUSALS, DeadLetterSettings


def _dropped(names: Iterable[str]) -> frozenset[str]:
    return ALWAYS_DROPPED.union(name.lower() for name in names)


LETTER_HEADERS = Section(
    "LetterHeaderKeys",
    "Header fields of a request that failed for good.",
    belongs_to="dead_letter.headers",
    settings=DeadLetterSettings,
    keys={
        "drop": Key(
            ListOf(HeaderName()),
            "Fields that are not written to disk, besides Proxy-Authorization, which never is; "
            "send them with a replay (-H).",
            make=_dropped,
            written=["Authorization", "Proxy-Authorization", "Cookie", "X-Api-Key"],
        ),
    },
)

DEAD_LETTER = Section(
    "DeadLetterKeys",
    "Which requests that failed for good are kept, for a person to look at and send again.",
    belongs_to="dead_letter",
    settings=DeadLetterSettings,
    make=dict,  # made by the route, whose retry.on is the default of `on`
    shorthands=(Switchable(),),
    keys={
        "methods": Key(
            ListOf(Method(), can_be_empty=False),
            "Requests of these methods are kept.",
            make=frozenset,
            written=["POST", "PUT", "PATCH", "DELETE"],
        ),
        "max_body": Key(
            Size(),
            "Largest body that is kept, within the route's buffer; a request with a larger one is "
            "kept without it, and cannot be sent again.",
        ),
        "on": Key(
            ListOf(OutcomeName("kept", (REFUSALS,)), can_be_empty=False),
            "After which responses, in the words of retry.on; refusals: what Holdfast refused "
            "itself. A request that failed without a response is kept in any case. Default, and "
            "what default stands for: the route's retry.on, or the built-in list.",
            written=None,
        ),
        "ttl": Key(
            Duration(
                zero="keeps no letter, write 7d (say), or dead_letter: false if that is meant"
            ),
            "How long a letter is kept; then it is deleted, and counted.",
        ),
        "headers": Key(LETTER_HEADERS, "Header fields that are kept or not."),
    },
)
