#!/usr/bin/env bash
# IPython 9.9.0: `%config NAME = {'a'}` raises NameError, and `%config NAME = {'a', 'b'}` works.
#
# Before a line magic sees its line, IPython replaces `{expression}` in it by the expression's value, as
# in shell commands. A set of one name is such an expression: the braces and the quotes go, and the magic
# is left with a bare name. A set of two is the expression of a tuple, whose text is again right Python. So
# `%config InlineBackend.figure_formats = {'png', 'svg'}`, which is in many notebooks, works by a
# conversion from a tuple, and with one format it fails; a list does what was meant. Whoever runs
# notebooks without IPython has to expand braces as it does.
#
# Needs: PyPI, python3 of 3.11 or later with venv.

set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check ipython==9.9.0
cat >try.py <<'PYTHON'
import contextlib
import io

from IPython.core.interactiveshell import InteractiveShell
from traitlets import Set, Unicode
from traitlets.config import Configurable


class Saving(Configurable):
    formats = Set(Unicode()).tag(config=True)


shell = InteractiveShell.instance()
saving = Saving(parent=shell)
shell.configurables.append(saving)
for value in ["{'png'}", "{'png', 'svg'}", "['png']"]:
    saving.formats = set()
    with contextlib.redirect_stdout(io.StringIO()):
        ran = shell.run_cell(f"%config Saving.formats = {value}")
    print(value, sorted(saving.formats), type(ran.error_in_exec).__name__)
PYTHON
seen=$(HOME=$folder venv/bin/python try.py)
echo "$seen"
diff - <(echo "$seen") <<'SEEN' || { echo "the behaviour has changed"; exit 1; }
{'png'} [] NameError
{'png', 'svg'} ['png', 'svg'] NoneType
['png'] ['png'] NoneType
SEEN
