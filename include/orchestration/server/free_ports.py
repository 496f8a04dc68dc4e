"""Finds free ports of the loopback interface for servers that must be told their port before they start."""

from __future__ import annotations

import contextlib
import secrets
import socket
import sys
from pathlib import Path

from orchestration.server.home import LOOPBACK

_LOWEST = 20_000
_ATTEMPTS = 200
_RANGE_OF_KERNEL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def find_free_port() -> int:
    """Returns a free port of the loopback interface."""
    return find_free_ports(1)[0]


def find_free_ports(number: int) -> list[int]:
    """Returns this many different free ports of the loopback interface.

    They lie below the range from which the kernel gives a port to each program that asks for any, where that range is known. So no such
    program takes one before its server has started. Nor does anybody else who asks here, on Linux, until this process ends.
    """
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(_bind_free_port()) for _ in range(number)]
        return [int(probe.getsockname()[1]) for probe in probes]


def _bind_free_port() -> socket.socket:
    below = _lowest_port_of_kernel() - _LOWEST
    for _ in range(_ATTEMPTS if below > 0 else 0):
        # Tests seed the module `random`, and several suites must not try the same ports in the same order.
        with contextlib.suppress(OSError):
            probe = _bind_port(_LOWEST + secrets.randbelow(below))
            if _reserve_port(probe.getsockname()[1]):
                return probe
            probe.close()
    return _bind_port(0)


def _reserve_port(port: int) -> bool:
    """Keeps all others who ask here from a port until this process ends. Returns False if it is reserved already."""
    if sys.platform != "linux":
        return True
    reservation = socket.socket(socket.AF_UNIX)
    try:
        reservation.bind(f"\0sluice-port-{port}")  # a name without a file, which the kernel forgets with the process
    except OSError:
        reservation.close()
        return False
    reservation.detach()  # open until this process ends
    return True


def _lowest_port_of_kernel() -> int:
    """Returns the lowest port that the kernel gives to a program that asks for any; 0 if that is not known."""
    try:
        return int(_RANGE_OF_KERNEL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0


def _bind_port(port: int) -> socket.socket:
    probe = socket.socket()
    try:
        probe.bind((LOOPBACK, port))
    except OSError:
        probe.close()
        raise
    return probe
