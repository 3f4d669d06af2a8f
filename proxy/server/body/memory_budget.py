"""What unfinished requests take up in memory, and when that is too much to let more of them in.

A body that is still coming takes what was read of it ahead of the upstream, and a large head what
the parser makes of it: 100 to 300 KiB each. Both are bounded in themselves, but
``limits.connections`` of them would be gigabytes. So each reserves its part of
:data:`MEMORY_LIMIT` before it is read, shared by caller (``replay_memory.py``); if none is left the
request gets 503. Small heads, and bodies that came with their heads, are not counted and never
refused.
"""

from proxy.http.refusal import Refusal, RefusalReason

MEMORY_LIMIT = 512 * 1024 * 1024
"""Bytes, of all clients of this process together."""

LARGE_HEAD = 8 * 1024
"""Bytes above which a head counts."""
COPIES = 4
"""How often a head is in memory: in bytes and in text, in the parser's fields and in ours."""
UNREAD_BODY = 256 * 1024
"""Bytes that a body that is still coming may take up, if it is that long: the largest read."""

NO_MEMORY = Refusal(
    RefusalReason.OVERLOAD, "Too many large requests are under way. Try again later.", close=True
)
