"""Checks whether this machine can run Sluice: Java, Python, disk, ports, jars. Prints one line per check, with what to do.

It uses only the standard library: set-up runs it as `python -I include/sluice/doctor.py` before anything is installed.
"""

from __future__ import annotations

import argparse
import errno
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "spark_jobs" / "conf"
JARS = {"jars": "delta-jars", "store-jars": "s3-jars"}
"""The folders of .sluice with jars that set-up fetches, and the list of each in CONF."""
JAVA_AT_LEAST = 17
PYTHONS = ((3, 11), (3, 12))
DISK_GB_TO_INSTALL = 4.0
"""For the environment (1.6 GB), the installer's temporary files, the class data archive, and a small lake."""
DISK_GB_TO_RUN = 1.0
AIRFLOW_PORT = 8080
"""The port of Airflow's API server and UI, if it is free and SLUICE_AIRFLOW_PORT names no other."""


@dataclass(frozen=True)
class MachineCheck:
    """The result of one check. `remedy` says what to do, and is empty if `ok`."""

    name: str
    ok: bool
    found: str
    remedy: str = ""

    def __str__(self) -> str:
        """One line."""
        if self.ok:
            return f"ok    {self.name}: {self.found}"
        return f"FAIL  {self.name}: {self.found}. {self.remedy}."


def java_command() -> str | None:
    """The java that Spark will start: JAVA_HOME's if that is set (as Spark does), else the one on PATH."""
    if home := os.environ.get("JAVA_HOME"):
        return str(Path(home) / "bin" / "java")
    return shutil.which("java")


def check_java() -> MachineCheck:
    """Check whether Spark's java runs and is new enough. This starts it, since being on PATH proves nothing."""
    where = "JAVA_HOME" if os.environ.get("JAVA_HOME") else "PATH"
    remedy = f"Install Java {JAVA_AT_LEAST} or later (say, openjdk-17-jre-headless) or point JAVA_HOME at one"
    command = java_command()
    if command is None:
        return MachineCheck("java", False, "none on PATH, and JAVA_HOME is not set", remedy)
    try:
        told = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return MachineCheck("java", False, f"{command} (from {where}) does not run: {type(error).__name__}", remedy)
    version = re.search(r'version "(?:1\.)?(\d+)([^"]*)"', told.stderr + told.stdout)
    if told.returncode != 0 or version is None:
        found = f"{command} (from {where}) does not tell its version; it ended with {told.returncode}"
        return MachineCheck("java", False, found, remedy)
    found = f"{version[1]}{version[2]} at {command} (from {where})"
    if int(version[1]) < JAVA_AT_LEAST:
        return MachineCheck("java", False, f"{found}, but Spark needs {JAVA_AT_LEAST} or later", remedy)
    return MachineCheck("java", True, found)


def check_python() -> MachineCheck:
    """Check whether the pinned packages were resolved for this interpreter's version."""
    found = f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro} at {sys.executable}"
    if sys.version_info[:2] in PYTHONS:
        return MachineCheck("python", True, found)
    return MachineCheck("python", False, f"{found}, but 3.11 or 3.12 is needed", "Name one: PYTHON=/its/path make ...")


def check_disk(folder: Path = ROOT, gigabytes: float | None = None, environment: str = ".venv") -> MachineCheck:
    """Check whether the disk below `folder` has room: to install if the environment does not exist yet, else to run."""
    if gigabytes is None:
        gigabytes = DISK_GB_TO_RUN if (folder / environment / "bin" / "sluice").exists() else DISK_GB_TO_INSTALL
    free = shutil.disk_usage(folder).free / 1e9
    found = f"{free:.1f} GB free below {folder}"
    if free >= gigabytes:
        return MachineCheck("disk", True, found)
    return MachineCheck("disk", False, f"{found}, but {gigabytes:g} GB are needed", "Make room or clone elsewhere")


def requested_airflow_port() -> int | None:
    """The port in SLUICE_AIRFLOW_PORT; None if it is not set. Raises ValueError if it is no port."""
    return parse_airflow_port(os.environ.get("SLUICE_AIRFLOW_PORT", ""))


def parse_airflow_port(told: str) -> int | None:
    """The port that a text names; None if it is empty. Raises ValueError if it is no port."""
    if not told:
        return None
    if not (told.isascii() and told.isdigit() and 0 < int(told) < 65536):
        raise ValueError(f"SLUICE_AIRFLOW_PORT is '{told}'; expected a port, a number from 1 to 65535.")
    return int(told)


def check_ports(ports: Iterable[int]) -> list[MachineCheck]:
    """Check whether this process can listen on each port at 127.0.0.1."""
    return [_check_port(port) for port in ports]


def _check_port(port: int) -> MachineCheck:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: a port whose last connections are still closing is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            why = "in use" if error.errno == errno.EADDRINUSE else f"not available ({error.strerror})"
            remedy = "If Sluice's own Airflow has it: make down; else choose another with SLUICE_AIRFLOW_PORT"
            return MachineCheck("port", False, f"127.0.0.1:{port} is {why}", remedy)
    return MachineCheck("port", True, f"127.0.0.1:{port} is free")


def check_airflow_port() -> MachineCheck:
    """Check whether Airflow gets its port: the requested one, or any if none is requested."""
    asked = requested_airflow_port()
    (check,) = check_ports([asked or AIRFLOW_PORT])
    if check.ok or asked is not None:
        return check
    (other,) = check_ports([0])
    return MachineCheck("port", True, f"{check.found}; Airflow takes another") if other.ok else other


def check_jars(folder: Path, checksums: Path) -> MachineCheck:
    """Check whether `folder` holds exactly the jars in `checksums` (in sha256sum's form), unaltered."""
    lines = checksums.read_text(encoding="ascii").splitlines()
    expected = {name: digest for digest, name in (line.split() for line in lines if line)}
    present = {path.name for path in folder.glob("*.jar")}
    wrong = [
        *(f"lacks {name}" for name in sorted(set(expected) - present)),
        *(f"holds {name}, which {checksums.name} does not name" for name in sorted(present - set(expected))),
        *(
            f"holds an altered {name}"
            for name in sorted(present & set(expected))
            if _sha256_of_file(folder / name) != expected[name]
        ),
    ]
    if wrong:
        return MachineCheck(
            "jars",
            False,
            f"{folder} {'; '.join(wrong)}",
            f"Remove {folder} and run make {'setup' if folder.name == 'jars' else 'setup-store'}",
        )
    return MachineCheck("jars", True, f"{len(expected)} jars in {folder} have their checksums")


def _sha256_of_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def run_machine_checks(environment: str = ".venv") -> list[MachineCheck]:
    """All checks of this machine except the port's; jars only if they have been fetched."""
    checks = [check_java(), check_python(), check_disk(environment=environment)]
    fetched = ((ROOT / ".sluice" / folder, checksums) for folder, checksums in JARS.items())
    return checks + [check_jars(folder, CONF / f"{checksums}.sha256") for folder, checksums in fetched if folder.is_dir()]


def _parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="doctor", description="Whether this machine can run Sluice.")
    parser.add_argument("--port", action="store_true", help="also whether Airflow gets its port")
    parser.add_argument("--quiet", action="store_true", help="print only what fails")
    parser.add_argument("--environment", default=".venv", metavar="FOLDER", help="the environment below the checkout")
    parser.add_argument("--jars", nargs=2, metavar=("FOLDER", "SUMS"), help="check only the jars of a folder")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line for each check. Returns 0, or 2 if one failed."""
    options = _parse_arguments(argv)
    try:
        checks = (
            [check_jars(*map(Path, options.jars))]
            if options.jars
            else [*run_machine_checks(options.environment), *([check_airflow_port()] if options.port else [])]
        )
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return report_checks(checks, options.quiet, options.json)


def report_checks(checks: Sequence[MachineCheck], quiet: bool, as_json: bool) -> int:
    """Prints a line for each check, on standard error if it fails. Returns 0, or 2 if one failed. quiet: only what fails."""
    healthy = all(check.ok for check in checks)
    for check in checks:
        if not (check.ok and quiet):
            print(check, file=sys.stdout if check.ok else sys.stderr, flush=True)
    if as_json:
        print(json.dumps({"ok": healthy, "checks": [asdict(check) for check in checks]}))
    return 0 if healthy else 2


if __name__ == "__main__":
    sys.exit(main())
