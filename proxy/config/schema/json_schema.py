"""JSON Schema of the configuration file, generated from the sections, for editors."""

from typing import Any

from proxy.config.schema.file import FILE
from proxy.config.schema.section import ListOf, Section, Shape, TableOf, sections
from proxy.config.schema.shorthands import MethodAndPath, SetsKey, Shorthand
from proxy.config.values.base import JsonSchema, Switch, string_schema

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema with which an editor completes and checks the file."""
    named = {section.name: section for section in sections(FILE) if section is not FILE}
    definitions = {name: _definition(named[name]) for name in sorted(named)}
    return {
        "$schema": _DIALECT,
        "$defs": definitions,
        **_definition(FILE),
        "title": "Holdfast",
    }


def _definition(section: Section) -> JsonSchema:
    """Return the schema of the section in its long form."""
    required = [name for name in section.keys if name in section.required]
    return {
        "additionalProperties": False,
        "description": section.text,
        "properties": {name: _key(section, name) for name in section.keys},
        **({"required": required} if required else {}),
        "type": "object",
    }


def _key(section: Section, name: str) -> JsonSchema:
    key = section.keys[name]
    described: JsonSchema = {"description": key.text}
    if (default := section.written(name)) is not None:
        described["default"] = default
    schema: JsonSchema = _sorted(_schema(key.shape) | described)
    if schema.keys() == {"$ref", "description"}:
        return described | schema  # as it was first published
    return schema


def _schema(shape: Shape) -> JsonSchema:
    """Return the schema of all forms in which *shape* can be written."""
    if isinstance(shape, Section):
        # The short forms that are expanded first come last.
        short_forms = [_short_form(shape, short) for short in reversed(shape.shorthands)]
        return _any_of([*short_forms, {"$ref": f"#/$defs/{shape.name}"}])
    if isinstance(shape, ListOf):
        return _list(shape)
    if isinstance(shape, TableOf):
        return _table(shape)
    return shape.json_schema()


def _list(shape: ListOf) -> JsonSchema:
    item = _schema(shape.item)
    whole = {"type": "array", "items": item} | ({} if shape.can_be_empty else {"minItems": 1})
    if shape.short is None:
        return whole
    none: list[JsonSchema] = [{"const": "none"}] if shape.short.none else []
    return _any_of([*none, item, whole])


def _table(table: TableOf) -> JsonSchema:
    names = table.names.json_schema()
    pattern = names.pop("pattern")
    names.pop("type")
    return {
        "type": "object",
        "patternProperties": {pattern: _schema(table.values)},
        "additionalProperties": False,
        **({"propertyNames": names} if names else {}),
    }


def _short_form(section: Section, shorthand: Shorthand) -> JsonSchema:
    if isinstance(shorthand, SetsKey):
        value = section.keys[shorthand.key].shape
        return _schema(value.item if isinstance(value, ListOf) else value)
    if isinstance(shorthand, MethodAndPath):
        return string_schema(r"^([A-Z]+ +)?/\S*$")
    return Switch().json_schema()


def _any_of(forms: list[JsonSchema]) -> JsonSchema:
    """Return the schema of all *forms*, each of them once, and the only one as it is."""
    flat: list[JsonSchema] = []
    for form in forms:
        flat += form["anyOf"] if form.keys() == {"anyOf"} else [form]
    unique = [form for i, form in enumerate(flat) if form not in flat[:i]]
    return unique[0] if len(unique) == 1 else {"anyOf": unique}


def _sorted(part: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return *part* with its names in the order in which they were first published.

    That is by the alphabet, but for what closes a table.
    """
    if isinstance(part, list):
        return [_sorted(item) for item in part]
    if not isinstance(part, dict):
        return part
    names = sorted(part, key=lambda name: (name == "additionalProperties", name))
    return {name: _sorted(part[name]) for name in names}
