"""Our place among the others on a request's way: its name, and what they cannot take from it."""

from proxy.http.fields import PROTECTED


class Hop:
    """Who we are in ``Via`` and ``Proxy-Status``, and which fields pass whatever others say."""

    __slots__ = ("name", "protected", "proxy_status", "via")

    def __init__(self, name: str = "holdfast", protected: frozenset[bytes] = PROTECTED) -> None:
        """*name* is our pseudonym, a token (RFC 9110 7.6.3)."""
        self.name = name.encode()
        self.via = b"Via: 1.1 " + self.name
        """The field where no earlier hop has left its own."""
        # A token of structured fields begins with a letter or *; else a string will do.
        is_token = name[0].isalpha() or name[0] == "*"
        self.proxy_status = self.name if is_token else b'"%b"' % self.name
        """The name as Proxy-Status spells it (RFC 9209 2)."""
        self.protected = protected
        """Fields that ``Connection`` cannot take out of a request, in lower case."""

    def __repr__(self) -> str:
        return f"<hop {self.name.decode()}>"

    def is_in(self, via: bytes) -> bool:
        """Whether one of the hops in *via* bears our name."""
        ours = self.name.lower()
        return any(
            len(parts := hop.split()) > 1 and parts[1].lower() == ours for hop in via.split(b",")
        )


OURSELVES = Hop()
"""Where no file says otherwise."""
