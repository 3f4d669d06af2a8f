"""JSON Schema of the configuration file, generated from the sections, for editors.

An editor takes its words from here: what to write where a value is wrong (``errorMessage``), what a
key means (``markdownDescription``), and good values (``examples``). yaml-language-server, which VS
Code, Neovim, Emacs and others use, shows all three; to a validator they mean nothing.

Which of its forms a value has is asked by its type, with ``if``, and not with ``anyOf``: then an
editor has one form to compare the value with, and one message, that of the form that was meant.
"""

import re
from collections.abc import Iterator
from typing import Any

from proxy import HOME, __version__
from proxy.config.schema.file import FILE
from proxy.config.schema.section import ListOf, Section, Shape, TableOf, sections
from proxy.config.schema.shorthands import ListSetsKey, MethodAndPath, SetsKey, Shorthand
from proxy.config.values.base import (
    JsonSchema,
    Switch,
    ValueType,
    merged,
    string_schema,
    with_message,
)

_DIALECT = "https://json-schema.org/draft/2020-12/schema"

_NONE: JsonSchema = {"type": "string", "pattern": "^none$"}
_METHOD_AND_PATH = string_schema(r"^([A-Z]+ +)?/\S*$")

# What is code rather than prose: a list, ${…}, what contains a sign that no word of prose contains,
# and a number with its unit.
_CODE = re.compile(
    r"\[[^\]\s:][^\]]*\]|\[\]|\$\{[^}]*\}"
    r"|[^\s(),;]*(?:[_*/\[\]{}$<>=+]|:(?=[^\s(),;])|[0-9](?:xx|(?:ms|[smhdB]|[KMGT]iB)\b))[^\s(),;]*"
)
_MARKDOWN_SIGNS = re.compile(r"([\\`*_{}\[\]#!<>])")


def schema_id() -> str:
    """Return the address of the schema of this version."""
    return f"{HOME}/raw/v{__version__}/config/schema.json"


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema with which an editor completes and checks the file."""
    named = {section.name: section for section in sections(FILE) if section is not FILE}
    return {
        "$schema": _DIALECT,
        "$id": schema_id(),
        **_definition(FILE),
        "title": "Holdfast",
        "$defs": {name: _definition(named[name]) for name in sorted(named)},
    }


def _definition(section: Section) -> JsonSchema:
    """Return the schema of the section in its long form."""
    required = [name for name in section.keys if name in section.required]
    return {
        "title": section.belongs_to,
        "description": section.text,
        "type": "object",
        "properties": {name: _key(section, name) for name in section.keys},
        **({"required": required} if required else {}),
        "additionalProperties": False,
        # For a key that is not known, and for one that is missing.
        "errorMessage": f"Unknown {'or missing ' if required else ''}key. Write {_keys(section)}.",
    }


def _keys(section: Section) -> str:
    """Return which keys a mapping has, for messages."""
    required = " and ".join(name for name in section.keys if name in section.required)
    others = [name for name in section.keys if name not in section.required]
    optional = f"any of {', '.join(others)}" if len(others) > 1 else "".join(others)
    return (
        f"{required} and, if needed, {optional}" if required and optional else required or optional
    )


def _key(section: Section, name: str) -> JsonSchema:
    key = section.keys[name]
    default = section.written(name)
    described: JsonSchema = {
        "title": name,
        "description": key.text,
        "markdownDescription": _markdown_description(section, name),
    }
    if default is not None:
        described["default"] = default
    examples = [one for one in key.examples or _examples(key.shape) if not _same(one, default)]
    if examples:
        described["examples"] = examples
    return described | _schema(key.shape)


def _same(one: object, other: object) -> bool:
    """Return whether two values are the same in JSON, where 1 is not true."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _schema(shape: Shape) -> JsonSchema:
    """Return the schema of all forms in which *shape* can be written."""
    if isinstance(shape, Section):
        is_mapping = {"if": {"type": "object"}, "then": {"$ref": f"#/$defs/{shape.name}"}}
        if shape.shorthands:
            return is_mapping | {"else": _else_of_section(shape)}
        return with_message({"type": "object"}, _expects(shape)) | is_mapping
    if isinstance(shape, ListOf):
        return _list(shape)
    if isinstance(shape, TableOf):
        return _table(shape)
    return shape.json_schema()


def _else_of_section(section: Section) -> JsonSchema:
    """Return the schema of what can be written in place of the mapping."""
    accepted, *others = [_short_form(section, short) for short in section.shorthands]
    for form in others:
        if "anyOf" in form:  # words, which editors list
            accepted = {"anyOf": [{"title": "a switch"} | accepted, *form["anyOf"]]}
        else:
            accepted = merged(accepted, form)
    return with_message(accepted, _expects(section))


def _short_form(section: Section, shorthand: Shorthand) -> JsonSchema:
    if isinstance(shorthand, SetsKey):
        return _value_of(section, shorthand).accepted()
    if isinstance(shorthand, ListSetsKey):
        return _schema(section.keys[shorthand.key].shape)
    return dict(_METHOD_AND_PATH) if isinstance(shorthand, MethodAndPath) else Switch().accepted()


def _value_of(section: Section, shorthand: SetsKey) -> ValueType[Any]:
    """Return the value type of what stands in place of the section."""
    shape = section.keys[shorthand.key].shape
    value = shape.item if isinstance(shape, ListOf) else shape
    if not isinstance(value, ValueType):
        raise TypeError(f"{section.name}.{shorthand.key} has no single value as its short form")
    return value


def _list(shape: ListOf) -> JsonSchema:
    whole: JsonSchema = {"type": "array", "items": _schema(shape.item)}
    if not shape.can_be_empty:
        whole["minItems"] = 1
    whole = with_message(whole, _expects(shape))
    if shape.short is None:
        return whole
    if isinstance(shape.item, Section):
        single = _schema(shape.item)
        single["else"] = with_message(single["else"], _expects(shape))
    elif isinstance(shape.item, ListOf | TableOf):
        raise TypeError("a list of lists or of tables has no short form")
    else:
        accepted = shape.item.accepted()
        accepted = merged(accepted, _NONE) if shape.short.none else accepted
        single = with_message(accepted, _expects(shape))
    return {"if": {"type": "array"}, "then": whole, "else": single}


def _table(table: TableOf) -> JsonSchema:
    names = table.names.accepted()
    pattern = names.pop("pattern")
    names.pop("type")
    whole: JsonSchema = {
        "type": "object",
        "patternProperties": {pattern: _schema(table.values)},
        "additionalProperties": False,
        **({"propertyNames": names} if names else {}),
    }
    return with_message(whole, _expects(table))


def _expects(shape: Shape) -> str:
    """Return what can be written for *shape*, which completes ``Write …``."""
    if isinstance(shape, Section):
        return "; or ".join(_forms(shape))
    if isinstance(shape, ListOf):
        if shape.short is None:
            return f"a list; each item is {_expects(shape.item)}"
        none = "; or none for no limit" if shape.short.none else ""
        return f"{_expects(shape.item)}; or a list of them{none}"
    if isinstance(shape, TableOf):
        return f"NAME: VALUE for each, where NAME is {shape.names.expects}"
    return shape.expects


def _forms(section: Section) -> Iterator[str]:
    """Yield each form in which *section* can be written, in words."""
    for shorthand in section.shorthands:
        if isinstance(shorthand, SetsKey):
            yield _value_of(section, shorthand).expects
        elif isinstance(shorthand, ListSetsKey):
            yield _expects(section.keys[shorthand.key].shape)
        elif isinstance(shorthand, MethodAndPath):
            yield "a path, with or without a method: /v1/** or POST /v1/charges"
        else:
            yield Switch.expects
    yield f"a mapping with {_keys(section)}"


def _examples(shape: Shape) -> tuple[object, ...]:
    """Return good values of *shape*; none for a mapping, which its keys explain."""
    if isinstance(shape, TableOf):
        return ()
    if isinstance(shape, Section):
        return tuple(one for short in shape.shorthands for one in _short_examples(shape, short))
    if isinstance(shape, ListOf):
        items = _examples(shape.item)
        return items if shape.short is not None else ([items[0]],) if items else ()
    return shape.examples


def _short_examples(section: Section, shorthand: Shorthand) -> tuple[object, ...]:
    if isinstance(shorthand, SetsKey):
        key = section.keys[shorthand.key]
        return key.examples or _examples(_value_of(section, shorthand))
    if isinstance(shorthand, ListSetsKey):
        return section.keys[shorthand.key].examples
    if isinstance(shorthand, MethodAndPath):
        return ("/v1/**", "POST /v1/charges")
    return Switch().examples


def _markdown_description(section: Section, name: str) -> str:
    """Return what an editor shows of a key: its meaning, what can be written, its default."""
    key = section.keys[name]
    paragraphs = [markdown(key.text), markdown(f"Write {_expects(key.shape)}.")]
    default = section.written(name)
    if name in section.required:
        paragraphs.append("Required.")
    elif default not in (None, {}):
        paragraphs.append(f"Default: `{_as_yaml(default)}`.")
    return "\n\n".join(paragraphs)


def _as_yaml(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_as_yaml, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def markdown(text: str) -> str:
    """Return *text* with what is code in it marked as such, and other signs escaped."""
    written, end = "", 0
    for found in _CODE.finditer(text):
        code = found[0].rstrip(".:")
        written += _MARKDOWN_SIGNS.sub(r"\\\1", text[end : found.start()]) + f"`{code}`"
        end = found.start() + len(code)
    return written + _MARKDOWN_SIGNS.sub(r"\\\1", text[end:])
