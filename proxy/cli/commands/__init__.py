"""One module per command of ``holdfast``, loaded when it is asked for."""
