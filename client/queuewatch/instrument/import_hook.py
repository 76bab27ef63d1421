"""Sets up telemetry only if a process imports botocore.

It is loaded by file name at the start of every Python process under `queuewatch-instrument`, so it imports only modules that the
interpreter has already imported, and the library itself only once botocore is imported.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from typing import Any

_OURS = "queuewatch"
"""Marks our functions."""
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def set_up() -> None:
    """Run when botocore is imported, or at once if it is imported already."""
    if "botocore" in sys.modules:
        _watch_sessions()
    else:
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds botocore in the usual way, and runs a function after it is imported.

    It stays until then, because the first to look for botocore may be a program that only asks whether it is installed, or an
    import that fails.
    """

    def __init__(self) -> None:
        self._asking: set[int] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Implement the import protocol; return None for everything except botocore."""
        thread = get_ident()
        if name != "botocore" or thread in self._asking:
            return None
        # Another finder may ask all finders in turn, including this one.
        self._asking.add(thread)
        try:
            for finder in list(sys.meta_path):
                spec = finder.find_spec(name, path, target) if finder is not self and hasattr(finder, "find_spec") else None
                if spec is not None:
                    self._run_after(spec.loader)
                    return spec
        finally:
            self._asking.discard(thread)
        return None

    def _run_after(self, loader: Any) -> None:
        """Replace `exec_module` on this loader until it has run, so that the module itself looks unchanged."""
        execute = getattr(loader, "exec_module", None)
        if execute is None or isinstance(loader, type) or hasattr(execute, _OURS):
            return
        is_own = "exec_module" in getattr(loader, "__dict__", ())

        def execute_and_watch(module: Any) -> None:
            if getattr(module, "__name__", None) != "botocore":  # some loaders load more than one module
                execute(module)
                return
            if is_own:
                loader.exec_module = execute
            else:
                del loader.exec_module
            execute(module)
            if self in sys.meta_path:
                _watch_sessions()
                sys.meta_path.remove(self)

        setattr(execute_and_watch, _OURS, True)
        try:
            loader.exec_module = execute_and_watch
        except AttributeError:
            sys.stderr.write(f"queuewatch-instrument: this process is not watched: {loader!r} does not allow it\n")


def _watch_sessions() -> None:
    try:
        _library().watch_every_session()
    except Exception as error:
        _raise_if_of_signal_handler(error)
        sys.stderr.write(f"queuewatch-instrument: this process is not watched: {error!r}\n")


def _raise_if_of_signal_handler(error: Exception) -> None:
    """Let a time limit of the application pass: this import fails then, and the next one is noticed as well."""
    import importlib

    try:
        module = importlib.import_module("queuewatch.signal_handlers")
    except ImportError:  # the library itself could not be loaded
        return
    module.raise_if_of_signal_handler(error)


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
