"""`%pip` and `!pip`: packages for this cell alone, where its network reaches an index."""

import importlib
import os
import re
import shlex
import site
import sys
from importlib import metadata, util
from importlib.machinery import PathFinder

NO_INDEX = (
    "pip cannot install %s: the network of this cell reaches no package index (%s); use what the"
    " cell has, or say that the package is needed"
)
NO_PIP = "this cell has no pip; importlib.metadata.distributions() lists the packages that it has"


# What `pip` and `python -m pip` are for child processes, where there is no pip: this module.
STAND_IN = """import os, subprocess, sys
own = {directory!r}
sys.path[:] = [entry for entry in sys.path if entry != own]
sys.modules.pop("pip", None)
others = os.environ.get("PYTHONPATH", "").split(os.pathsep)
os.environ["PYTHONPATH"] = os.pathsep.join(entry for entry in others if entry != own)
with open({modules!r}, "rb") as file:
    sources = dict(part.split(b"\\n", 1) for part in file.read().split(b"\\f")[1:])
packages = {{"__name__": "packages"}}
exec(compile(sources[b"packages"], "packages.py", "exec"), packages)
call = lambda arguments, program: subprocess.call([program, *arguments])
sys.exit(packages["run"](sys.argv[1:], call))
"""


def offer():
    """Lets programs that the code starts call pip as `%pip` does."""
    if "HOME" not in os.environ or util.find_spec("pip"):
        return
    directory = os.path.expanduser("~/.local/lib/cellblock")
    modules = os.path.join(os.path.dirname(os.path.abspath(__file__)), "modules")
    text = STAND_IN.format(directory=directory, modules=modules)
    programs = os.path.expanduser("~/.local/bin")
    try:
        write(directory + "/pip/__init__.py", "")
        write(directory + "/pip/__main__.py", text)
        for name in "pip", "pip3":
            write(os.path.join(programs, name), "#!%s\n%s" % (sys.executable, text), 0o755)
    except OSError:
        return  # nothing can be written there, so nothing could be installed either
    for name, place in ("PYTHONPATH", directory), ("PATH", programs):
        entries = os.environ.get(name, "").split(os.pathsep)
        if place not in entries:
            os.environ[name] = os.pathsep.join(filter(None, [place, *entries]))


def write(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, mode)


def pip(line):
    """Runs pip; its status."""
    from .commands import spawn

    return run(shlex.split(line), spawn)


def run(arguments, spawn):
    """The same for its arguments, by a function that runs programs."""
    wanted = requirements(arguments)
    if wanted and all(map(is_satisfied, wanted)):
        for requirement in wanted:
            print("Requirement already satisfied: " + requirement)
        return 0
    has_pip = util.find_spec("pip")
    is_remote = arguments[:1] == ["install"] and not is_local(arguments)
    if not is_remote and not has_pip:
        print(NO_PIP, file=sys.stderr)
        return 1
    try:
        releases = list_releases() if is_remote else []
    except (OSError, ValueError) as error:
        print(NO_INDEX % (", ".join(wanted) or "anything", error), file=sys.stderr)
        return 1
    program = ["-m", "pip"] if has_pip else fetch(releases)
    # Debian's Python wants packages of Debian's only; its own directory is read-only here.
    os.environ.setdefault("PIP_BREAK_SYSTEM_PACKAGES", "1")
    return spawn([*program, "--disable-pip-version-check", *arguments], sys.executable)


def requirements(arguments):
    """What `pip install` is to install, if that is named one by one."""
    command, *words = arguments or [""]
    plain = [word for word in words if word not in ("-q", "--quiet", "--user", "-qq")]
    is_plain = command == "install" and not any(word.startswith("-") or "/" in word for word in plain)
    return plain if is_plain else []


def is_local(arguments):
    """Whether pip is to install archives that the cell has. Where they need more, pip says so."""
    archives = [word for word in arguments if word.endswith((".whl", ".tar.gz", ".zip"))]
    return "--no-index" in arguments or any(map(os.path.exists, archives))


def is_satisfied(requirement):
    """Whether the cell has this package, in a version that will do."""
    name, version = re.fullmatch(r"([\w.-]*)(?:\[.*\])?(.*)", requirement).groups()
    try:
        found = metadata.version(name)
    except (metadata.PackageNotFoundError, ValueError):
        return False
    return not version or version.strip() == "==" + found


def index():
    return os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/")


def list_releases():
    """The files of pip that the index has, which shows that the network reaches it."""
    import json
    from urllib.request import Request, urlopen

    accept = {"Accept": "application/vnd.pypi.simple.v1+json"}
    with urlopen(Request(index() + "/pip/", headers=accept), timeout=20) as answer:
        return json.load(answer)["files"]


def fetch(releases):
    """The arguments by which Python runs a pip that the index has."""
    import hashlib
    from urllib.parse import urljoin
    from urllib.request import urlopen

    wheel = [file for file in releases if is_usable(file)][-1]
    with urlopen(urljoin(index() + "/pip/", wheel["url"])) as answer:
        content = answer.read()
    if hashlib.sha256(content).hexdigest() != wheel["hashes"]["sha256"]:
        raise OSError("the pip that the index sends is not the one that it lists")
    directory = os.path.expanduser("~/.local/lib")
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, os.path.basename(wheel["filename"]))
    with open(path, "wb") as file:
        file.write(content)
    return [path + "/pip"]


def is_usable(file):
    """Whether this Python runs that release of pip."""
    needed = re.fullmatch(r">=\s*3\.(\d+)", file.get("requires-python") or "")
    return (
        re.fullmatch(r"pip-[\d.]+-py3-none-any\.whl", file["filename"]) is not None
        and not file.get("yanked")
        and needed is not None
        and int(needed.group(1)) <= sys.version_info[1]
    )


def find_spec(name):
    """A module that has been installed since this process began."""
    directory = site.getusersitepackages()
    if directory not in sys.path and os.path.isdir(directory):
        site.addsitedir(directory)
    importlib.invalidate_caches()
    return PathFinder.find_spec(name)
