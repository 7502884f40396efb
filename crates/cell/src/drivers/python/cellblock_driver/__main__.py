"""Starts the driver: `python3 cellblock_driver/__main__.py 3` serves the requests
that come from descriptor 3, and writes frames to descriptor 4."""

import builtins
import sys
from _frozen_importlib_external import SourceFileLoader, spec_from_file_location

PACKAGE = "cellblock_driver"
DIRECTORY = __file__.rpartition("/")[0]
# Packages that expect a window, a browser or a notebook.
ASSISTED = {"IPython", "PIL", "matplotlib", "plotly"}

# The path without this directory, where Python looks for a script's own modules.
STANDARD_PATH = sys.path[1:]
shared_import = builtins.__import__


def standard_import(name, globals=None, locals=None, fromlist=(), level=0):
    """`import` as the driver's modules have it: a file of the program's never
    stands in for a module of Python's."""
    if level or name in sys.modules:
        return shared_import(name, globals, locals, fromlist, level)
    program_path, sys.path = sys.path, STANDARD_PATH
    try:
        return shared_import(name, globals, locals, fromlist, level)
    finally:
        sys.path = program_path


class Loader(SourceFileLoader):
    """Loads a module of the driver with builtins of its own, since a program may
    replace or delete those that everything else shares."""

    builtins = {**vars(builtins), "__import__": standard_import}

    def exec_module(self, module):
        module.__builtins__ = self.builtins
        super().exec_module(module)


class Finder:
    """Finds the driver's modules, wherever `sys.path` leads, and assists with
    packages that expect a notebook."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        package, _, module = name.partition(".")
        if package == PACKAGE:
            file = f"{DIRECTORY}/{module or '__init__'}.py"
            return spec_from_file_location(
                name,
                file,
                loader=Loader(name, file),
                submodule_search_locations=None if module else [DIRECTORY],
            )
        if package in ASSISTED:
            from cellblock_driver import hooks

            return hooks.find_spec(Finder, name, path, target)
        return None


def main():
    sys.meta_path.insert(0, Finder)
    from cellblock_driver.session import Session

    Session(int(sys.argv[1]), STANDARD_PATH).run()


main()
