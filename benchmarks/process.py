"""Measures this process: its memory, and a piece of work in it. Needs only Python."""

import ctypes
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ABSENT = 3  # exit status of a process whose peer is not installed


def resident() -> int:
    """Bytes this process has in memory now."""
    return _status("VmRSS")


def forget_peak() -> None:
    """Give back what is free, which would hide growth, and let the peak begin anew."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def peak() -> int:
    """The most bytes this process had in memory since `forget_peak`."""
    return _status("VmHWM")


def growth(work: Callable[[], Any]) -> int:
    """How many bytes the peak of some work lies above what was there before it."""
    forget_peak()
    before = resident()
    work()
    return max(peak() - before, 0)


def _status(field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.M)
    if not found:
        raise RuntimeError(f"this system does not report {field}")
    return int(found[1]) * 1024


def cost(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """What some work returns, and its seconds by the clock, of the processor, and its memory."""
    forget_peak()
    before = resident()
    cpu, clock = time.process_time(), time.perf_counter()
    result = work()
    clock, cpu = time.perf_counter() - clock, time.process_time() - cpu
    return result, {"seconds": clock, "cpu": cpu, "growth": max(peak() - before, 0)}
