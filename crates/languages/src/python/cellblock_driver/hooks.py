"""Assists packages that expect a window, a browser, a notebook or a file with the code,
when they are imported."""

import os
import sys

from . import results, session, source


def find_spec(own, module, *where):
    """The spec of a module that is to be patched, or stood in for; `own` is the
    finder that asks."""
    name = module.partition(".")[0]
    has_stand_in = name in ("IPython", "matplotlib_inline")
    if module not in PATCHES and not has_stand_in:
        return None
    for finder in sys.meta_path:
        find_spec = None if finder is own else getattr(finder, "find_spec", None)
        spec = find_spec and find_spec(module, *where)
        if spec is not None:
            break
    else:
        root = sys.modules.get(name)
        if has_stand_in and (module == name or getattr(root, "__path__", None) == []):
            from . import standins

            return standins.find_spec(module) if module in standins.MODULES else None
        return None
    patch = PATCHES.get(module)
    execute = getattr(spec.loader, "exec_module", None)
    if patch and execute:

        def exec_module(module):
            steps = patch(module)
            step(steps)
            execute(module)
            step(steps)

        spec.loader.exec_module = exec_module
    return spec


def step(steps):
    try:
        next(steps, None)
    except Exception:
        pass  # another version; it has to do without


def matplotlib(module):
    # It looks for a directory that it can write to, and complains without one.
    os.environ.setdefault("MPLCONFIGDIR", os.environ.get("TMPDIR", "/tmp") + "/.matplotlib")
    yield


def pyplot(module):
    def backend(name):
        is_drawing = isinstance(name, str) and name.lower() in DRAWING
        return name if is_drawing else "agg"

    settings = sys.modules["matplotlib"].rcParams
    settings["backend"] = backend(dict.get(settings, "backend"))
    yield
    switch = module.switch_backend
    module.switch_backend = lambda newbackend: switch(backend(newbackend))
    from . import figures

    module.show = figures.show_figures
    module.install_repl_displayhook = lambda: None  # figures are shown at the end anyway
    sys.modules["matplotlib.figure"].Figure.show = figures.show_figure
    axes = sys.modules["matplotlib.axes"].Axes
    axes.bxp = figures.note_boxes(axes.bxp)


# Those that draw without a window; all others become `agg`.
DRAWING = ("agg", "cairo", "pdf", "pgf", "ps", "svg", "template")


def real_ipython(module):
    """IPython's own display() prints when no shell of IPython's runs."""
    yield
    from . import display

    functions = display.update_display, display.publish_display_data, display.clear_output
    for function in (session.display, *functions):
        if hasattr(module, function.__name__):
            setattr(module, function.__name__, function)


def real_getter(module):
    """IPython's own functions find the one shell, too."""
    yield
    module.get_ipython = session.get_ipython


def real_shell(module):
    yield

    class One:
        """The class's own functions, which would make a second shell."""

        def __get__(self, nothing, cls):
            return lambda *_, **__: session.get_ipython()

    module.InteractiveShell.instance = One()
    module.InteractiveShell.initialized = classmethod(lambda cls: True)


def real_magic(module):
    """The shell of these objects is not of a class that their settings demand."""
    yield
    begin = module.Magics.__init__

    def __init__(self, shell=None, **options):
        begin(self, None, **options)
        self.shell = shell

    module.Magics.__init__ = __init__


def real_plots(module):
    yield
    from . import inline

    module.select_figure_formats = inline.select_formats


def real_inline(module):
    yield
    from . import inline

    module.set_matplotlib_formats = inline.set_formats
    module.set_matplotlib_close = inline.set_close


def image_show(module):
    yield

    def show_image(image, title=None, **_):
        results.show(image)
        return True

    module.show = show_image


def plotly(module):
    yield
    original = module.show

    def show_plot(fig, *arguments, **options):
        base = sys.modules["plotly.basedatatypes"].BaseFigure
        if isinstance(fig, base) and not arguments and "renderer" not in options:
            results.show(fig)
        else:
            original(fig, *arguments, **options)

    module.show = show_plot


def line_cache(module):
    yield
    source.show(module)


def programs(module):
    yield
    from . import reserves

    module.Popen._execute_child = reserves.lifted(module.Popen._execute_child)


def processes(module):
    yield
    from . import workers

    module.get_preparation_data = workers.preparation_data(module.get_preparation_data)


def starts(module):
    yield
    start = module.BaseProcess.start

    def noting(process):
        if session.history:
            from . import workers

            workers.note()
        return start(process)

    noting.__doc__ = start.__doc__
    module.BaseProcess.start = noting


def pool(module):
    yield
    from . import workers

    join = workers.join_exited_workers(module.Pool._join_exited_workers)
    module.Pool._join_exited_workers = staticmethod(join)


PATCHES = {
    "IPython.core.display": real_ipython,
    "IPython.core.display_functions": real_ipython,
    "IPython.core.getipython": real_getter,
    "IPython.core.interactiveshell": real_shell,
    "IPython.core.magic": real_magic,
    "IPython.core.pylabtools": real_plots,
    "PIL.ImageShow": image_show,
    "joblib.externals.loky.backend.spawn": processes,
    "loky.backend.spawn": processes,
    "linecache": line_cache,
    "matplotlib": matplotlib,
    "matplotlib.pyplot": pyplot,
    "matplotlib_inline.backend_inline": real_inline,
    "multiprocessing.pool": pool,
    "multiprocessing.process": starts,
    "multiprocessing.spawn": processes,
    "plotly.io._renderers": plotly,
    "subprocess": programs,
}
