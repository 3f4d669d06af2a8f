"""What would become of a request, played through for ``holdfast explain``."""
