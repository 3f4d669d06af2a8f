"""The columns of a table, declared once: for its definition, its queries, and what they return."""

from typing import Any

from proxy.stores import StoreError

_TYPES = {"TEXT": str, "INTEGER": int, "REAL": float, "BLOB": bytes}


class Columns:
    """Some columns of a table, none of which is ever null."""

    def __init__(self, declared: str, error: str) -> None:
        """Take names and types, such as ``route TEXT, size INTEGER``.

        *error* says what is wrong where a row has values of other types.
        """
        self._declared = declared
        pairs = [column.split() for column in declared.split(",")]
        self._names = tuple(name for name, _ in pairs)
        self._types = tuple(_TYPES[kind] for _, kind in pairs)
        self._error = error
        self.definition = ",\n            ".join(f"{name} {kind} NOT NULL" for name, kind in pairs)
        """For CREATE TABLE, with a line for each: SQLite shows them as they were written."""
        self.names = ", ".join(self._names)
        """For SELECT and INSERT."""
        self.parameters = ", ".join(f":{name}" for name in self._names)
        """For the values of an INSERT, which are given by name."""

    def __add__(self, other: "Columns") -> "Columns":
        """Return these columns and then the *other* ones, of the same table."""
        return Columns(f"{self._declared}, {other._declared}", self._error)

    def __len__(self) -> int:
        return len(self._names)

    def read(self, row: tuple[object, ...]) -> dict[str, Any]:
        """Return the values of *row* by name. Raises StoreError if it has others."""
        if len(row) != len(self) or not all(map(isinstance, row, self._types)):
            raise StoreError(self._error)
        return dict(zip(self._names, row, strict=True))
