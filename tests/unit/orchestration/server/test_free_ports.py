"""Free ports are different ones, and none that the kernel gives to another program meanwhile."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from orchestration.server import free_ports
from orchestration.server.free_ports import find_free_port, find_free_ports
from orchestration.server.home import LOOPBACK


def give_range(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    """Makes this the range of the kernel."""
    (tmp_path / "range").write_text(text)
    monkeypatch.setattr(free_ports, "_RANGE_OF_KERNEL", tmp_path / "range")


def test_ports_are_different_and_below_the_range_of_the_kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # Not those that servers of other tests are given meanwhile.
    monkeypatch.setattr(free_ports, "_LOWEST", 12_000)
    give_range(monkeypatch, tmp_path, "13000\t60999\n")
    found = find_free_ports(20)
    assert len(set(found)) == 20 and all(12_000 <= port < 13_000 for port in found)
    for port in found:
        with socket.socket() as server:
            server.bind((LOOPBACK, port))


def test_a_port_that_is_taken_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.socket() as server:
        server.bind((LOOPBACK, 0))
        taken = server.getsockname()[1]
        monkeypatch.setattr(free_ports, "_LOWEST", taken)
        give_range(monkeypatch, tmp_path, f"{taken + 1} 60999")
        assert find_free_port() != taken


@pytest.mark.parametrize("text", ["1024 65535\n", "", "unknown"])
def test_any_free_port_is_taken_where_there_is_no_room_below_the_range(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    give_range(monkeypatch, tmp_path, text)
    assert len(set(find_free_ports(3))) == 3


def test_a_port_is_given_once_though_its_server_has_not_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = find_free_port()
    monkeypatch.setattr(free_ports, "_LOWEST", given)
    give_range(monkeypatch, tmp_path, f"{given + 1} 60999")
    assert find_free_port() != given
