"""Builds a wheel for one platform that carries the executable, or one for all without it.

CELLBLOCK_EXECUTABLE names the executable to carry. It must be static: then one wheel fits
glibc and musl.
"""

import os
import pathlib
import re
import shutil

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).parent
EXECUTABLE = os.environ.get("CELLBLOCK_EXECUTABLE")


class BuildWithExecutable(build_py):
    def run(self) -> None:
        super().run()
        target = pathlib.Path(self.build_lib, "cellblock", "bin", "cellblock")
        # A build directory may have one from an earlier build.
        target.unlink(missing_ok=True)
        if EXECUTABLE:
            check_static(EXECUTABLE)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(EXECUTABLE, target)
            target.chmod(0o755)


class PlatformWheel(bdist_wheel):
    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = not EXECUTABLE

    def get_tag(self) -> "tuple[str, str, str]":
        if not EXECUTABLE:
            return super().get_tag()
        machine = machine_of(EXECUTABLE)
        return "py3", "none", f"manylinux_2_17_{machine}.musllinux_1_1_{machine}"


def head(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(1 << 16)


def machine_of(path: str) -> str:
    """The processor that an ELF file is for: e_machine in elf(5)."""
    machines = {62: "x86_64", 183: "aarch64"}
    start = head(path)
    if start[:4] != b"\x7fELF":
        raise SystemExit(f"CELLBLOCK_EXECUTABLE: {path} is not an ELF file")
    number = int.from_bytes(start[18:20], "little")
    if number not in machines:
        raise SystemExit(f"CELLBLOCK_EXECUTABLE: {path} is for the unknown machine {number}")
    return machines[number]


def check_static(path: str) -> None:
    """A program header of type PT_INTERP (3) names a dynamic loader."""
    start = head(path)
    machine_of(path)
    at = int.from_bytes(start[32:40], "little")
    size = int.from_bytes(start[54:56], "little")
    count = int.from_bytes(start[56:58], "little")
    kinds = [int.from_bytes(start[at + n * size :][:4], "little") for n in range(count)]
    if 3 in kinds:
        raise SystemExit(f"CELLBLOCK_EXECUTABLE: {path} is not static")


def version() -> str:
    """The one that the package states, which is the executable's."""
    text = (HERE / "src" / "cellblock" / "__init__.py").read_text()
    found = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    assert found, "src/cellblock/__init__.py states no version"
    return found[1]


setup(
    version=version(),
    cmdclass={"build_py": BuildWithExecutable, "bdist_wheel": PlatformWheel},
)
