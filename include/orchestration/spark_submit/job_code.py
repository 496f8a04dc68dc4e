"""The job code as zip files, so that drivers and executors on hosts without this checkout find it. Imports no Airflow.

Executors, and a driver that a cluster starts, import the packages from one zip. Such a driver also reads files of a checkout, such as
environments and profiles, from a second zip, which is unpacked in its folder.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterable
from pathlib import Path

from sluice.durable_files import write_file_durably
from sluice.settings import Settings
from sluice.spark_process import read_spark_property

PACKAGES = ("sluice", "residue", "pipelines")
_SHIPPED = (".py", ".csv", ".toml", ".json")
"""The kinds of files that are shipped: code, and the rule sets that code reads from its own folder."""
_READ_BY_DRIVERS = {"include": _SHIPPED, "environments": (".toml",), "spark_jobs": (".py", ".conf", ".properties")}
"""The folders of a checkout that a driver reads, and which kinds of files of each."""
CODE_OF_EXECUTORS = "spark.sluice.code"
"""The property of a profile that says where a cluster's executors get the job code from: `shipped`, the default, or `image`."""
_LONG_AGO = (1980, 1, 1, 0, 0, 0)


def is_code_shipped(settings: Settings) -> bool:
    """Whether each task ships the job code: on a cluster, unless its profile says that the image holds it."""
    return settings.on_cluster and read_spark_property(settings, CODE_OF_EXECUTORS) != "image"


def job_code_to_ship(settings: Settings) -> Path | None:
    """The argument --py-files of spark-submit: the zip of the current code, None if no code is shipped.

    The file is named after its content, and an existing file is never changed, since a running driver imports from it.
    """
    return write_job_code_zip(settings) if is_code_shipped(settings) else None


def write_job_code_zip(settings: Settings) -> Path:
    """The zip file of the packages below include/ and of the rule sets beside their modules, the same bytes for the same code."""
    include = settings.root / "include"
    return _write_zip(settings, "sluice", include, _list_files(include, dict.fromkeys(PACKAGES, _SHIPPED)))


def write_driver_files_zip(settings: Settings) -> Path:
    """The zip file of the parts of this checkout that a driver reads, under their paths in it; the same bytes for the same files."""
    return _write_zip(settings, "checkout", settings.root, _list_files(settings.root, _READ_BY_DRIVERS))


def _list_files(root: Path, folders: dict[str, tuple[str, ...]]) -> list[Path]:
    return sorted(file for name, kinds in folders.items() for file in (root / name).rglob("*") if file.suffix in kinds)


def _write_zip(settings: Settings, name: str, root: Path, files: Iterable[Path]) -> Path:
    content = _make_zip_content(root, list(files))
    path = settings.state / "code" / f"{name}-{hashlib.sha256(content).hexdigest()[:12]}.zip"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file_durably(path, content)
    return path


def _make_zip_content(root: Path, files: list[Path]) -> bytes:
    # Python finds a package without __init__.py in a zip only by an entry for its folder.
    folders = {folder for file in files for folder in file.parents if folder.is_relative_to(root) and folder != root}
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        for folder in sorted(folders):
            archive.writestr(zipfile.ZipInfo(f"{folder.relative_to(root).as_posix()}/", _LONG_AGO), b"")
        for file in files:
            entry = zipfile.ZipInfo(file.relative_to(root).as_posix(), _LONG_AGO)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, file.read_bytes())
    return made.getvalue()
