"""How much of all clients' request bodies is kept for another attempt."""


class ReplayMemory:
    """One count for the whole process: who keeps a piece asks first."""

    __slots__ = ("used",)

    def __init__(self) -> None:
        self.used = 0
        """Bytes that are kept now."""

    def take(self, size: int, limit: int) -> bool:
        """Count *size* more bytes as kept, unless that would be more than *limit* in all."""
        if self.used + size > limit:
            return False
        self.used += size
        return True

    def give_back(self, size: int) -> None:
        """*size* bytes are kept no longer."""
        self.used -= size
