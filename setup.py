"""What pyproject.toml cannot say yet: the one file of C. Everything else about the package is there."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        # Not a Python module but a plain library, loaded by sources/wire/scan.py, so it needs a C compiler but not Python's
        # headers. It is optional: without a compiler, a slower parser is used.
        Extension("sources.wire._scan", ["sources/wire/scan.c"], extra_compile_args=["-std=c99", "-O3"], optional=True)
    ]
)
