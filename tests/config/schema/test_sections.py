"""Each key has its field, and what is written for its default is that field's default."""

from collections.abc import Iterator
from dataclasses import fields

import pytest

from proxy.config.read.defaults import BUILT_IN, built_in, complete
from proxy.config.read.settings import fields_of, make_settings
from proxy.config.read.typed_tree import TypedMapping
from proxy.config.schema import FILE, NO_FIELD, REQUIRED, Key, Section, sections
from proxy.config.schema.listen import LISTEN
from proxy.config.schema.store import STORE
from proxy.config.values.base import Integer
from proxy.policy.settings import RetrySettings, Settings, UpstreamTls

SECTIONS = {section.name: section for section in sections(FILE)}
KEYS = [(section, name) for section in SECTIONS.values() for name in section.keys]

NO_KEYS = {
    "FileKeys": {"trust_unix"},  # of trusted_proxies
    "UpstreamKeys": {"name"},  # of upstreams
    "ListenOn": {"host", "port", "path"},  # of address
    "StoreKeys": {"host", "port", "database", "path"},  # of url
}
"""Fields that are filled otherwise than by a key of their own."""


def key_id(value: object) -> str:
    return value.name if isinstance(value, Section) else str(value)


def filled(section: Section) -> Iterator[str]:
    """The fields that the keys of *section* and of its parts fill."""
    for name, key in section.keys.items():
        if isinstance(key.shape, Section) and section.has_part(key.shape):
            yield from filled(key.shape)
        elif section.field_of(name) != NO_FIELD:
            yield section.field_of(name)


def defaults_of(part: Section) -> dict[str, object]:
    """The defaults of the fields that *part* fills, if nothing is written in it."""
    fields: dict[str, object] = {}
    for name, key in part.keys.items():
        if isinstance(key.shape, Section) and part.has_part(key.shape):
            fields |= defaults_of(key.shape)
        elif part.written(name) is not None:
            fields[part.field_of(name)] = part.default(name)
    return fields


PARTS = {
    "DeliveryRetryAfterKeys",
    "DeliveryRetryKeys",
    "HeadersKeys",
    "LetterHeaderKeys",
    "PauseKeys",
    "PolicyKeys",
    "RetryAfterKeys",
}
"""Sections that fill some fields of their settings; another one fills the rest."""


@pytest.mark.parametrize("name", sorted(SECTIONS.keys() - PARTS))
def test_every_field_has_its_key(name: str) -> None:
    section = SECTIONS[name]
    known = {field.name for cls in section.classes for field in fields(cls)}
    found = [*filled(section)]
    assert len(found) == len(set(found))
    assert set(found) - {"address", "url"} == known - NO_KEYS.get(name, set())


@pytest.mark.parametrize(("section", "name"), KEYS, ids=key_id)
def test_the_default_as_written_is_that_of_the_field(section: Section, name: str) -> None:
    key, entry = section.keys[name], built_in(section, name)
    if entry is None:
        assert section.written(name) is None
        return
    mapping = complete(TypedMapping("", BUILT_IN, {name: entry}))
    if isinstance(key.shape, Section) and section.has_part(key.shape):
        expected = defaults_of(key.shape)
    elif section.field_of(name) == NO_FIELD:
        expected = {}
    else:
        expected = {section.field_of(name): section.default(name)}
    if (section, name) == (STORE, "tls"):
        expected = {"tls": UpstreamTls()}  # of a rediss URL; any other has none
    assert fields_of(section, mapping) == expected


def test_required_keys() -> None:
    required = {name: section.required for name, section in SECTIONS.items() if section.required}
    assert required == {
        "ListenOn": {"address"},
        "ListenTls": {"cert", "key"},
        "RouteKeys": {"match", "upstream"},
        "StoreKeys": {"url"},
        "UpstreamKeys": {"urls"},
    }
    assert LISTEN.keys["address"].written is REQUIRED


def test_the_settings_of_an_empty_file_are_those_of_no_file() -> None:
    assert make_settings(FILE, TypedMapping("", BUILT_IN, {}, FILE)) == Settings()


def test_a_key_without_a_field_is_a_mistake() -> None:
    with pytest.raises(LookupError, match=r"RetryKeys.elapsed: no field 'elapsed' in .*Retry"):
        Section(
            "RetryKeys",
            "",
            belongs_to="retry",
            settings=RetrySettings,
            keys={"elapsed": Key(Integer(1), "")},
        )


def test_a_default_that_cannot_be_read_is_a_mistake() -> None:
    section = Section(
        name="Broken",
        text="",
        belongs_to="retry",
        settings=RetrySettings,
        keys={"attempts": Key(Integer(1), "", written="many")},
    )
    with pytest.raises(LookupError, match=r"Broken\.attempts: its default cannot be read: 'many'"):
        built_in(section, "attempts")
