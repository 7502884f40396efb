"""Lists the fonts for matplotlib ahead of time; the working directory goes into
the tree.

matplotlib keeps that list in the user's cache and makes it anew when there is
none, which in a fresh cell would be each time, for half a second. Here it gets
one of its own, which it reads where the cache has none. Should a later version
do this in another way, it is left as it is.
"""

import pathlib

import matplotlib
from matplotlib import font_manager

OLD = "fm = json_load(fm_path)\n"
NEW = """fm = json_load(
                fm_path if fm_path.exists()
                else Path(mpl.get_data_path(), "fontlist.json"))
"""

module = pathlib.Path(font_manager.__file__)
source = module.read_text()
if source.count(OLD) == 1:
    patched = pathlib.Path("." + font_manager.__file__)
    patched.parent.mkdir(parents=True)
    patched.write_text(source.replace(OLD, NEW))
    fonts = pathlib.Path("." + matplotlib.get_data_path(), "fontlist.json")
    fonts.parent.mkdir(parents=True)
    manager = font_manager.FontManager()
    key = lambda font: (str(font.fname), font.style, str(font.weight))
    manager.ttflist.sort(key=key)
    manager.afmlist.sort(key=key)
    font_manager.json_dump(manager, fonts)
