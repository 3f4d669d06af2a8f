"""JSON Schema of the configuration file, generated from the models, for editors."""

from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from proxy.config.schema.file import FileKeys

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PUBLISHED = {"ListenTlsKeys": "ListenTls"}
"""Definitions that are named otherwise than their models: they were published so."""


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema with which an editor completes and checks the file."""
    schema = _tidied(FileKeys.model_json_schema(schema_generator=_Generator))
    return {"$schema": _DIALECT, **schema, "title": "Holdfast"}


class _Generator(GenerateJsonSchema):
    """Pydantic's, with the published names of definitions."""

    def normalize_name(self, name: str) -> str:
        """Return the name of the definition of the model *name* (pydantic's hook)."""
        return super().normalize_name(_PUBLISHED.get(name, name))


def _tidied(part: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return *part* closed to unknown names, and without titles that only repeat the key."""
    if isinstance(part, list):
        return [_tidied(item) for item in part]
    if not isinstance(part, dict):
        return part
    tidy: dict[str, Any] = {
        # Under `properties` every name is a key of the file, even one called title.
        key: {name: _tidied(value) for name, value in inner.items()}
        if key in {"properties", "$defs"}
        else _tidied(inner)
        for key, inner in part.items()
        if key != "title"
    }
    if "patternProperties" in tidy:
        tidy["additionalProperties"] = False
    # None in a model means that the key is absent; null is never written.
    if tidy.get("default", ...) is None:
        del tidy["default"]
    if "anyOf" in tidy:
        forms = tidy["anyOf"] = _forms(tidy["anyOf"])
        if len(forms) == 1:
            del tidy["anyOf"]
            tidy |= forms[0]
    return tidy


def _forms(written: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each form that can be written once: shorthands nest alternatives in alternatives."""
    flat: list[dict[str, Any]] = []
    for form in written:
        flat += form["anyOf"] if form.keys() == {"anyOf"} else [form]
    covered: list[dict[str, Any]] = [{"type": "null"}]
    if {"type": "boolean"} in flat:
        covered.append({"type": "boolean", "const": False})
    return [form for i, form in enumerate(flat) if form not in covered and form not in flat[:i]]
