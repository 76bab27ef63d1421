"""Run by Python at startup if `queuewatch-instrument` has put this folder first on PYTHONPATH.

It sets up telemetry on the import of botocore, removes this folder from `sys.path` (child processes find it in the
environment), and runs the `sitecustomize` that this one shadows. It must be fast and import almost nothing, because every
Python process under the command runs it.
"""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec, spec_from_file_location

_HERE = os.path.dirname(os.path.abspath(__file__))


def _set_up() -> None:
    # Load by file, because the library may not be installed in this interpreter.
    spec = spec_from_file_location("_queuewatch_import_hook", os.path.join(os.path.dirname(_HERE), "import_hook.py"))
    if spec is not None and spec.loader is not None:
        hook = module_from_spec(spec)
        spec.loader.exec_module(hook)
        hook.set_up()


def _run_the_hidden_one() -> None:
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)  # Python reports its errors, as usual


sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or os.curdir) != _HERE]
try:
    _set_up()
except Exception as error:
    sys.stderr.write("queuewatch-instrument: this process is not watched: %r\n" % (error,))
_run_the_hidden_one()
