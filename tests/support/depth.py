"""How hard to try: a quick look by default, a long one with ``HOLDFAST_FUZZ=deep``.

Random tests take their number of examples from here (hypothesis profiles ``fast``
and ``deep``), tests of bounds their sizes.
"""

import os

from hypothesis import HealthCheck, settings

DEEP = os.environ.get("HOLDFAST_FUZZ") == "deep"

# A case takes as long as the deadlines that it runs into.
for _name, _examples in (("fast", 300), ("deep", 20_000)):
    settings.register_profile(
        _name,
        max_examples=_examples,
        deadline=None,
        # Where CI=true, hypothesis would take the same examples every time.
        derandomize=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        print_blob=True,
    )

FUZZ = settings.get_profile("deep" if DEEP else "fast")
"""Decorates a property."""


def fewer(divisor: int) -> settings:
    """For properties whose examples are dear."""
    return settings(FUZZ, max_examples=max(1, FUZZ.max_examples // divisor))
