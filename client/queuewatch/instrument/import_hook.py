"""Sets up telemetry only if a process imports botocore.

It is loaded by file name at the start of every Python process under `queuewatch-instrument`, so it imports only modules that the
interpreter has already imported, and the library itself only once botocore is imported.
"""

from __future__ import annotations

import os
import sys
from typing import Any

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def set_up() -> None:
    """Run when botocore is imported, or at once if it is imported already."""
    if "botocore" in sys.modules:
        _watch_sessions()
    else:
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds botocore in the usual way, and runs a function after it is imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Implement the import protocol; return None for everything except botocore."""
        if name != "botocore":
            return None
        sys.meta_path.remove(self)
        for finder in list(sys.meta_path):
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                _after(spec.loader)
                return spec
        return None


def _after(loader: Any) -> None:
    """Replace `exec_module` on this loader once, so that the module itself looks unchanged."""
    execute = getattr(loader, "exec_module", None)
    if execute is None:
        return

    def execute_and_watch(module: Any) -> None:
        del loader.exec_module
        execute(module)
        _watch_sessions()

    loader.exec_module = execute_and_watch


def _watch_sessions() -> None:
    try:
        _library().watch_every_session()
    except Exception as error:
        sys.stderr.write(f"queuewatch-instrument: this process is not watched: {error!r}\n")


def _library() -> Any:
    import importlib

    name = "queuewatch.instrument.sessions"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "queuewatch":
            raise
    # Not installed in this interpreter: load the copy that contains this file, without adding its folder to the path.
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("queuewatch", os.path.join(_PACKAGE, "__init__.py"), submodule_search_locations=[_PACKAGE])
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(name)
    package = module_from_spec(spec)
    sys.modules["queuewatch"] = package
    try:
        spec.loader.exec_module(package)
    except BaseException:
        sys.modules.pop("queuewatch", None)
        raise
    return importlib.import_module(name)
