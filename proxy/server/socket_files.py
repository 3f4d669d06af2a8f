"""The file that a unix socket leaves in the file system."""

import errno
import socket
from pathlib import Path


def make_way(path: str) -> None:
    """Remove a socket that an earlier process left behind, and nothing else.

    Raises OSError if what is there is no socket, or if somebody listens on it.
    """
    file = Path(path)
    if not file.exists():
        return
    if not file.is_socket():
        raise FileExistsError(errno.EEXIST, f"{path} is not a socket, and is left alone")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)  # noqa: FBT003 - the socket module's signature
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            file.unlink()
            return
        except BlockingIOError:
            pass  # somebody listens, and is busy
    raise OSError(errno.EADDRINUSE, f"{path} is in use")
