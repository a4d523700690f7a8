"""What the processes of a federation do, as the kernel tells it."""

import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fedopl.engines.flower.federation_watcher import MARK

LISTENS = "0A"


def processes_of(federation):
    """Whoever carries our mark and has this federation's folder for a home."""
    home = f"FLWR_HOME={(Path(federation) / 'home').resolve()}".encode()
    found = {}
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            variables = path.read_bytes().split(b"\0")
            if home in variables and any(v.startswith(f"{MARK}=".encode()) for v in variables):
                command = path.with_name("cmdline").read_bytes()
                found[int(path.parent.name)] = command.replace(b"\0", b" ").decode()
    return found


@dataclass(frozen=True)
class Socket:
    """One end of a connection, or of one that may come."""

    here: str
    there: str
    listens: bool


def sockets_of(processes):
    """The internet sockets of these processes."""
    own = set()
    for pid in processes:
        with suppress(OSError):
            for handle in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    own.add(str(handle.readlink()))
    found = set()
    for kind in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]:
            _, here, there, state, *_, inode = line.split()[:10]
            if f"socket:[{inode}]" in own:
                found.add(Socket(address(here), address(there), state == LISTENS))
    return found


def address(text):
    """An address as people write it; the kernel prints words of four bytes in its own order."""
    words = text.split(":")[0]
    parts = [int(words[start : start + 8], 16) for start in range(0, len(words), 8)]
    packed = struct.pack(f"={len(parts)}I", *parts)
    return socket.inet_ntop(socket.AF_INET if len(parts) == 1 else socket.AF_INET6, packed)


def wait_until(ready, seconds, what):
    """Wait for it, but not for ever."""
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.2)
