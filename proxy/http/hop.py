"""One hop of a request's path, this proxy: its name, and the fields that it always passes on."""

from proxy.http.fields import PROTECTED


class Hop:
    """The name of this proxy in ``Via`` and ``Proxy-Status``, and the fields it protects."""

    def __init__(self, name: str = "holdfast", protected: frozenset[bytes] = PROTECTED) -> None:
        """Take *name*, the pseudonym of this proxy: a token (RFC 9110 7.6.3)."""
        self.name = name.encode()
        self.via = b"Via: 1.1 " + self.name
        """The whole field, for a message without a Via of earlier hops."""
        # A token of structured fields begins with a letter or *; other names become a string.
        is_token = name[0].isalpha() or name[0] == "*"
        self.proxy_status = self.name if is_token else b'"%b"' % self.name
        """The name as Proxy-Status spells it (RFC 9209 2)."""
        self.protected = protected
        """Fields that ``Connection`` cannot remove from a request, in lower case."""

    def __repr__(self) -> str:
        return f"<hop {self.name.decode()}>"

    def is_in(self, via: bytes) -> bool:
        """Whether one of the hops in *via* has this proxy's name."""
        ours = self.name.lower()
        return any(
            len(parts := hop.split()) > 1 and parts[1].lower() == ours for hop in via.split(b",")
        )


DEFAULT_HOP = Hop()
"""The hop of a proxy whose configuration gives it no other name."""
