"""Python runs this as it starts, when `queuewatch-instrument` has put this folder first on PYTHONPATH.

It makes the import of botocore set up telemetry, takes this folder off `sys.path` (child processes find it in the
environment), and runs the `sitecustomize` that it hides. It must be quick and import next to nothing: every Python process
below the command runs it.
"""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec, spec_from_file_location

_HERE = os.path.dirname(os.path.abspath(__file__))


def _set_up() -> None:
    # By its file: the interpreter may be one in which the library is not installed.
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
        spec.loader.exec_module(module)  # what it raises is Python's to report, as without us


sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or os.curdir) != _HERE]
try:
    _set_up()
except Exception as error:
    sys.stderr.write("queuewatch-instrument: this process is not watched: %r\n" % (error,))
_run_the_hidden_one()
