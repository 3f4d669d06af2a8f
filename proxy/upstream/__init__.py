"""Everything that talks to upstreams, and nothing else does.

``upstream``    the addresses behind one configured name, and an attempt at one of them
``addresses``   names to addresses, looked up again while they are in use
``pool``        the connections to one address
``connection``  one connection: bytes out, a checked response in
``call``        one request on one connection, and the record of how it ended
``tls``         whom to trust, and who we say we are

An attempt always knows two things that decide whether it may be repeated: was a
byte sent, and did a byte come back. That is why this is not an HTTP client
library: those hide both, and some resend on their own.
"""
