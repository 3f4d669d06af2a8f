"""The shared test vectors: one group at a time, each case a row of a table test."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from _pytest.mark import ParameterSet

_FILE = Path(__file__).with_name("vectors.yaml")


@cache
def _groups() -> dict[str, Any]:
    # A second less, in every process that runs tests, where libyaml is built in.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    groups: dict[str, Any] = yaml.load(_FILE.read_bytes(), loader)  # noqa: S506 - both are safe
    return groups


def group(name: str) -> dict[str, Any]:
    """Everything that the file says about *name*: how to read it, settings, cases."""
    found: dict[str, Any] = _groups()[name]
    return found


def cases(
    name: str, where: Callable[[dict[str, Any]], bool] = lambda _: True
) -> list[ParameterSet]:
    """The cases of one group, for ``parametrize("case", …)``; ids carry the note."""
    return [
        pytest.param(case, id=" ".join(filter(None, (case["id"], case.get("note")))))
        for case in group(name)["cases"]
        if where(case)
    ]
