"""How hard to try: a quick look by default, a long one with ``HOLDFAST_FUZZ=deep``.

Random tests take their number of examples from here (hypothesis profiles ``fast``
and ``deep``), tests of bounds their sizes. ``make mutants`` sets ``HOLDFAST_FUZZ=mutants``.

The quick look takes the same examples every time, so that what passes once passes again; new ones
are for the long look.
"""

import os

from hypothesis import HealthCheck, Phase, settings

_PROFILE = os.environ.get("HOLDFAST_FUZZ", "fast")
DEEP = _PROFILE == "deep"

for _name, _examples in (("fast", 150), ("deep", 20_000)):
    settings.register_profile(
        _name,
        max_examples=_examples,
        # A case takes as long as the deadlines that it runs into, and as others have the cores.
        deadline=None,
        derandomize=_name == "fast",
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

FUZZ = settings.get_profile(_PROFILE)
"""Decorates a property."""

# Of all other properties, once the tests are told to: see conftest.py.
settings.register_profile("usual", FUZZ, max_examples=min(FUZZ.max_examples, 100))


def fewer(divisor: int) -> settings:
    """For properties whose examples are dear."""
    return settings(FUZZ, max_examples=max(1, FUZZ.max_examples // divisor))
