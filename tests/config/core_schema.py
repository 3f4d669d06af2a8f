"""Reads YAML 1.2, in which ``on`` is a word: the library knows 1.1 only."""

import re
from typing import Any

import yaml

_BOOLEAN = "tag:yaml.org,2002:bool"


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {  # noqa: RUF012 - the library's way to say it
        first: [(tag, form) for tag, form in forms if tag != _BOOLEAN]
        for first, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver(_BOOLEAN, re.compile("^(?:true|false)$"), list("tf"))


def read(text: str) -> Any:  # noqa: ANN401 - any YAML
    """What *text* says, as an editor understands it."""
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader with fewer words
