"""The command: ``python -m proxy.demo [--with-proxy FILE]``."""

import argparse
import asyncio
import sys
from pathlib import Path

from proxy.demo.serving import DemoFailed
from proxy.demo.session import run


def main() -> int:
    """Serve until a signal ends it; return 1 if that failed."""
    parser = argparse.ArgumentParser(prog="python -m proxy.demo", description="Serve the demo.")
    parser.add_argument(
        "--listen", default="127.0.0.1:9000", metavar="HOST:PORT", help="the upstream's address"
    )
    parser.add_argument("--seed", type=int, default=0, help="for /flaky?chance=")
    parser.add_argument(
        "--with-proxy", type=Path, metavar="FILE", help="start the proxy too, with this file"
    )
    arguments = parser.parse_args()
    try:
        asyncio.run(run(arguments.listen, arguments.seed, arguments.with_proxy))
    except DemoFailed as failure:
        print(f"demo: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
