"""`python -m cellblock ARGUMENTS`: the executable that the package uses."""

import os
import sys

from .executable import find

path = find()
os.execv(path, [path, *sys.argv[1:]])
