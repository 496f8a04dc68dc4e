"""The code that is shipped to a cluster: of the checkout alone, named after its content."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from orchestration.spark_submit.job_code import job_code_to_ship, write_job_code_zip
from sluice.settings import Settings

ROOT = Path(__file__).resolve().parents[4]
pytestmark = pytest.mark.usefixtures("nothing_said")


def test_job_code_is_shipped_to_a_cluster_only(root: Path) -> None:
    settings = Settings.current()
    assert job_code_to_ship(settings) is None
    shipped_to = job_code_to_ship(replace(settings, spark_master="spark://somewhere:7077"))
    assert shipped_to is not None
    assert shipped_to.is_relative_to(root / ".sluice")


def test_the_code_that_is_shipped_needs_no_other_package_of_include(root: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(write_job_code_zip(Settings.current()))!r}); "
        "import sluice.runs.job, sluice.runs.erasure_jobs, sluice.erasure.proof.certificate; "
        "ours = [one for one in sys.modules.values() if hasattr(one, '__path__') and '/include/' in str(getattr(one, '__file__', ''))]; "
        "sys.exit(str(ours) if ours else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_zip_is_named_after_its_content_and_holds_code_alone(root: Path) -> None:
    (root / "include").unlink()
    for package in ("sluice", "residue", "pipelines"):
        # Without compiled code, of which another process may be writing some just now.
        shutil.copytree(ROOT / "include" / package, root / "include" / package, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "include" / "sluice" / "notes.txt").write_text("no code")
    settings = Settings.current()
    first = write_job_code_zip(settings)
    content = first.read_bytes()
    names = zipfile.ZipFile(first).namelist()
    assert {"sluice/settings.py", "sluice/runs/job.py", "residue/walk.py", "pipelines/gym/pipeline.py"} <= set(names)
    kinds = (".py", "/", "rules.csv")
    assert [name for name in names if not name.endswith(kinds) or name.startswith("orchestration")] == []
    # Of a package without __init__.py as of any other; rule sets are read there, too.
    told = f"import sys; sys.path.insert(0, {str(first)!r}); import pipelines.gym.silver as s; print(s.__file__, len(s.RULES.expectations))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, env={"PATH": os.defpath}, check=False)
    assert done.returncode == 0, done.stderr
    file, rules = done.stdout.split()
    assert file.startswith(str(first)) and int(rules) == 3
    for file in (root / "include").rglob("*.py"):
        os.utime(file, (1, 1))
    assert write_job_code_zip(settings) == first, "times do not count"
    with (root / "include" / "sluice" / "errors.py").open("a") as file:
        file.write("\n# changed\n")
    assert write_job_code_zip(settings) != first
    assert first.read_bytes() == content, "a driver that runs reads it yet"


def test_code_in_the_zip_runs_without_the_checkout_on_its_path(root: Path, tmp_path: Path) -> None:
    archive = write_job_code_zip(Settings.current())
    code = "import sluice.settings as s, sluice.declare; print(s.__file__); print(s.Settings.current().root)"
    site = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(archive)!r})\n{code}"],
        env={"SLUICE_ROOT": str(root), "PATH": os.defpath},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert site.returncode == 0, site.stderr
    file, found = site.stdout.split()
    assert file.startswith(str(archive))
    assert found == str(root)
