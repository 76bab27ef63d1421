"""The bill of materials lists exactly what the lock files and the pom pin."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_pinned_package_and_jar_is_listed_once() -> None:
    """It is created as documented. A line of the lock in an unknown form would be missing."""
    answer = subprocess.run([sys.executable, ROOT / "scripts" / "sbom.py"], capture_output=True, text=True, check=True).stdout
    components = json.loads(answer)["components"]
    lock = (ROOT / "requirements.txt").read_text().splitlines()
    pinned = [
        line.split()[0].replace("==", "@") for line in lock if "==" in line.split(";")[0] and not line.startswith((" ", "#"))
    ]
    python = [one["purl"].removeprefix("pkg:pypi/") for one in components if one["purl"].startswith("pkg:pypi/")]
    assert python == [name.lower() for name in pinned]
    jars = [one for one in components if one["purl"].startswith("pkg:maven/")]
    assert len(jars) == len((ROOT / "streaming" / "spark" / "spark-kafka.sha256").read_text().splitlines())
    assert all(len(jar["hashes"][0]["content"]) == 64 for jar in jars)
    assert len({one["bom-ref"] for one in components}) == len(components)


def test_packages_for_some_platforms_are_marked() -> None:
    """A scanner's finding about them may not concern the image."""
    answer = subprocess.run([sys.executable, ROOT / "scripts" / "sbom.py"], capture_output=True, text=True, check=True).stdout
    markers = {one["name"]: one["properties"][0]["value"] for one in json.loads(answer)["components"] if "properties" in one}
    assert markers["colorama"] == "sys_platform == 'win32'"
