"""Write the locks: requirements.txt (the service), requirements-dev.txt (and the tools), requirements-proxy.txt (the proxy's
image), and of the SDKs that the proxy is tried with tests/sdks/*.txt.

They name packages, versions and hashes, and no place to get them from: that is the machine's own setting.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UV = Path(sys.executable).with_name("uv")
COMPILE = [
    *(str(UV), "pip", "compile", "--quiet", "--universal", "--python-version", "3.11", "--generate-hashes"),
    *("--no-emit-package", "queuewatch"),  # comes from this checkout
    *("--no-emit-index-url", "--no-emit-find-links", "--no-annotate", "--no-header"),
]
# A folder of wheels on this machine would pin files that other machines cannot get.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.endswith("_FIND_LINKS")}


def main(more: list[str]) -> None:
    """Both files, the second containing the first, version for version; `more` are options for uv."""
    for options in (
        ["pyproject.toml", "-o", "requirements.txt"],
        ["pyproject.toml", "--extra", "dev", "-c", "requirements.txt", "-o", "requirements-dev.txt"],
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
