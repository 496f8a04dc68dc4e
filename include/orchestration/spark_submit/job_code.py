"""The job code as one zip file, so that drivers and executors on hosts without this checkout find it. Imports no Airflow."""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path

from sluice.durable_files import write_file_durably
from sluice.settings import Settings

PACKAGES = ("sluice", "residue", "pipelines")
_SHIPPED = (".py", ".csv", ".toml", ".json")
"""Of which kinds files are shipped: code, and the rule sets that code reads beside itself."""
CODE_OF_EXECUTORS = "spark.sluice.code"
"""The property of a profile that says where a cluster's executors have the job code from: `shipped`, unless it is `image`."""
_LONG_AGO = (1980, 1, 1, 0, 0, 0)


def job_code_to_ship(settings: Settings) -> Path | None:
    """What spark-submit is to be given as --py-files: the zip of today's code on a cluster, None on this machine alone.

    None, too, where the profile says that the executors' image holds the code.

    The file is named after its content, and one that is there is never changed: a driver that runs imports from it.
    """
    shipped = settings.on_cluster and settings.spark_property(CODE_OF_EXECUTORS) != "image"
    return write_job_code_zip(settings) if shipped else None


def write_job_code_zip(settings: Settings) -> Path:
    """The zip file of the packages below include/ and of the rule sets beside their modules, the same bytes for the same code."""
    content = _make_zip_content(settings.root / "include")
    path = settings.state / "code" / f"sluice-{hashlib.sha256(content).hexdigest()[:12]}.zip"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file_durably(path, content)
    return path


def _make_zip_content(include: Path) -> bytes:
    files = sorted(file for package in PACKAGES for file in (include / package).rglob("*") if file.suffix in _SHIPPED)
    # Python finds a package without __init__.py in a zip only by an entry for its folder.
    folders = {folder for file in files for folder in file.parents if folder.is_relative_to(include) and folder != include}
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        for folder in sorted(folders):
            archive.writestr(zipfile.ZipInfo(f"{folder.relative_to(include).as_posix()}/", _LONG_AGO), b"")
        for file in files:
            entry = zipfile.ZipInfo(file.relative_to(include).as_posix(), _LONG_AGO)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, file.read_bytes())
    return made.getvalue()
