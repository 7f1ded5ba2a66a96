"""Files read whole."""

from __future__ import annotations

import errno
import stat
from pathlib import Path


def read_whole(path: Path) -> bytes:
    """The bytes of a file or pipe.

    Raises:
        OSError: It cannot be read, or is a device, of which some never end.
        ValueError: The name is none.
    """
    mode = path.stat().st_mode
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        raise OSError(errno.EINVAL, "it is a device, no file")
    return path.read_bytes()
