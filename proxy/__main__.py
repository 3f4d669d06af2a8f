"""``python -m proxy`` is ``holdfast``."""

from proxy.cli import main

if __name__ == "__main__":
    main(prog_name="holdfast")
