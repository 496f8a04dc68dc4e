"""The bill of materials of what set-up installs, as CycloneDX 1.6: the pinned Python packages and the Delta jars, with their checksums.

python .ci/sbom.py REQUIREMENTS.txt FOLDER_OF_JAR_LISTS OUTPUT.json, in an environment made from requirements-sbom.txt.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL


def bom_of_packages(requirements: Path) -> Bom:
    """The packages of a compiled list of requirements."""
    command = [sys.executable, "-m", "cyclonedx_py", "requirements", "--output-reproducible", str(requirements)]
    made = subprocess.run(command, capture_output=True, text=True, check=True)
    found: Bom = Bom.from_json(json.loads(made.stdout))  # type: ignore[attr-defined]
    return found


def jars(folder: Path) -> Iterator[Component]:
    """The jars that delta-jars.xml names, with their checksums from delta-jars.sha256."""
    lines = (folder / "delta-jars.sha256").read_text(encoding="ascii").splitlines()
    checksums = {name: checksum for checksum, name in (line.split() for line in lines)}
    for one in ElementTree.parse(folder / "delta-jars.xml").getroot().iter("dependency"):
        group, name, version = one.attrib["org"], one.attrib["name"], one.attrib["rev"]
        url = PackageURL("maven", group, name, version)
        yield Component(
            type=ComponentType.LIBRARY,
            group=group,
            name=name,
            version=version,
            purl=url,
            bom_ref=str(url),
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=checksums[f"{name}-{version}.jar"])],
        )


def main(requirements: Path, folder: Path, output: Path) -> None:
    """Write the bill of these lists, if it is valid."""
    bom = bom_of_packages(requirements)
    bom.components.update(jars(folder))
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2)
    if (mistake := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)) is not None:
        sys.exit(f"{output} would be no valid CycloneDX: {mistake}")
    output.write_text(text + "\n", encoding="utf-8")
    print(f"{output}: {len(bom.components)} components")


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:4]))
