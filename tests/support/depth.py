"""How hard to try: a quick look by default, a long one with ``HOLDFAST_FUZZ=deep``.

Random tests take their number of examples from here (hypothesis profiles ``fast``
and ``deep``), tests of bounds their sizes. ``make mutants`` sets ``HOLDFAST_FUZZ=mutants``.
"""

import os

from hypothesis import HealthCheck, Phase, settings

_PROFILE = os.environ.get("HOLDFAST_FUZZ", "fast")
DEEP = _PROFILE == "deep"

# A case takes as long as the deadlines that it runs into.
for _name, _examples in (("fast", 150), ("deep", 20_000)):
    settings.register_profile(
        _name,
        max_examples=_examples,
        deadline=None,
        # Where CI=true, hypothesis would take the same examples every time.
        derandomize=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        print_blob=True,
    )

# Thousands of runs, most of which fail: the same examples each time, and the first failure will do.
settings.register_profile(
    "mutants",
    settings.get_profile("fast"),
    max_examples=100,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
)

# Properties without a decorator have no deadline either: a busy machine is no failure.
settings.register_profile("usual", settings(), deadline=None)
settings.load_profile("usual")

FUZZ = settings.get_profile(_PROFILE)
"""Decorates a property."""


def fewer(divisor: int) -> settings:
    """For properties whose examples are dear."""
    return settings(FUZZ, max_examples=max(1, FUZZ.max_examples // divisor))
