"""Write the lock files: of the service, the demo, the tools, the proxy's image, and the SDKs used in the proxy tests.

They are requirements.txt, requirements-demo.txt, requirements-dev.txt, requirements-proxy.txt and tests/sdks/*.txt. They contain
packages, versions and hashes, but no download URLs, which are a setting of each machine.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UV = Path(sys.executable).with_name("uv")
COMPILE = [
    *(str(UV), "pip", "compile", "--quiet", "--universal", "--python-version", "3.11", "--generate-hashes"),
    *("--no-emit-package", "queuewatch"),  # installed from this checkout
    *("--no-emit-index-url", "--no-emit-find-links", "--no-annotate", "--no-header"),
]
# Local wheels would pin files that other machines cannot get.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.endswith("_FIND_LINKS")}


def main(more: list[str]) -> None:
    """Write them all; each of the first three contains the one before it with the same versions. `more` are options for uv."""
    for options in (
        ["pyproject.toml", "-o", "requirements.txt"],
        ["pyproject.toml", "--extra", "demo", "-c", "requirements.txt", "-o", "requirements-demo.txt"],
        ["pyproject.toml", "--extra", "demo", "--extra", "dev", "-c", "requirements-demo.txt", "-o", "requirements-dev.txt"],
        [
            "client/pyproject.toml",
            *("--extra", "proxy", "--extra", "kafka"),
            "-c",
            "requirements-dev.txt",
            "-o",
            "requirements-proxy.txt",
        ],
        *([str(file), "-o", str(file.with_suffix(".txt"))] for file in sorted(ROOT.glob("tests/sdks/*.in"))),
    ):
        subprocess.run([*COMPILE, *options, *more], cwd=ROOT, env=ENVIRONMENT, check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
