"""The table of metrics, and those who count by the names in it."""

import ast
from collections.abc import Iterator
from pathlib import Path

from proxy.observe.metrics.families import COUNTED, FAMILIES, SOURCES
from proxy.observe.metrics.family import MetricType

PACKAGE = Path(__file__).parent.parent.parent.parent / "proxy"


def counted_by_name() -> Iterator[tuple[str, str]]:
    """Every call of ``count("holdfast_…")``: the file, and the name."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="count"), args=[ast.Constant(value=str(name)), *_]
                ) if name.startswith("holdfast_"):
                    yield str(path.relative_to(PACKAGE)), name


def test_each_name_is_in_the_table_once() -> None:
    names = [family.name for family in FAMILIES]
    assert len(names) == len(set(names))
    assert len(SOURCES) == len({source.name for source in SOURCES})


def test_who_counts_by_name_names_a_counter_of_the_table() -> None:
    found = list(counted_by_name())
    assert found
    for path, name in found:
        assert name in COUNTED, f"{path} counts {name}, which is in no row of families.py"
        assert COUNTED[name].kind is MetricType.COUNTER, path


def test_names_follow_the_conventions() -> None:
    for family in FAMILIES:
        assert family.name.endswith("_total") == (family.kind is MetricType.COUNTER), family
        assert family.name.endswith("_seconds") or family.kind is not MetricType.HISTOGRAM, family
        labels = [label.name for label in family.all_labels]
        assert len(labels) == len(set(labels))
        assert "le" not in labels
