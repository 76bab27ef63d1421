"""Sets up telemetry when, and only when, a process imports botocore.

Loaded by its file's name at the start of every Python process below `queuewatch-instrument`: it imports nothing that the
interpreter has not imported already, and the library itself only once botocore is there.
"""

from __future__ import annotations

import os
import sys
from typing import Any

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def set_up() -> None:
    """Wait for botocore, or take it as it is when it has been imported already."""
    if "botocore" in sys.modules:
        _watch_sessions()
    else:
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds botocore as everybody else does, and has something done after it is imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Part of the import protocol: None for everything but botocore."""
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
    """Replace `exec_module` on this one loader, for one time: the module must not look as if it had been tampered with."""
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
    # Not installed in this interpreter: the copy this file belongs to, without putting its neighbours on the path.
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
