"""Every key of the file: its shape and its text, one module per section.

The only place where keys are listed (``section.py`` says how). The reader walks these sections to
check a file and to make its settings, ``holdfast schema`` prints them as JSON Schema
(``json_schema.py``), and the reference tables, ``/config`` and ``explain`` follow them. A default
stands in ``policy/settings/`` alone, with the field that gets the value. May import ``values/``,
``source/``, ``diagnostics/``, ``policy/settings/`` and ``http/header_edits``.
"""

from proxy.config.schema.file import FILE
from proxy.config.schema.section import (
    FROM_FIELD,
    NO_FIELD,
    REQUIRED,
    Key,
    ListOf,
    Section,
    Shape,
    TableOf,
    sections,
)
