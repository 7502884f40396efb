"""IPython's modules where IPython is not installed, as far as other packages look for it: those that
need it by themselves bring it along."""

from _frozen_importlib import ModuleSpec

from .session import display, get_ipython

VERSION = 9, 0, 0


def top():
    from .notebook import ZMQInteractiveShell

    return dict(
        __version__="%d.%d.%d" % VERSION,
        version_info=VERSION,
        display=display,
        get_ipython=get_ipython,
        InteractiveShell=ZMQInteractiveShell,
    )


def displays():
    from . import ipython

    return dict(ipython.NAMES, __all__=sorted(ipython.NAMES))


def getting():
    return dict(get_ipython=get_ipython)


def shells():
    from .notebook import ZMQInteractiveShell

    return dict(InteractiveShell=ZMQInteractiveShell, InteractiveShellABC=ZMQInteractiveShell)


def terminals():
    class TerminalInteractiveShell:
        """IPython's shell in a terminal, which this is not."""

    return dict(TerminalInteractiveShell=TerminalInteractiveShell)


def formats():
    from . import formatters, rich

    names = dict(
        BaseFormatter=formatters.Formatter,
        FormatterABC=formatters.Formatter,
        DisplayFormatter=formatters.DisplayFormatter,
        PlainTextFormatter=formatters.TextFormatter,
        format_display_data=formatters.display_formatter.format,
    )
    for method, key in rich.FORMS:
        is_word = method in ("markdown", "latex", "javascript")
        name = (method.capitalize() if is_word else method.upper()) + "Formatter"
        own = dict(format_type=key, print_method="_repr_%s_" % method)
        names[name] = type(name, (formatters.Formatter,), own)
    return names


def magics():
    from . import decorators

    return {name: getattr(decorators, name) for name in decorators.NAMES}


def failures():
    from .commands import UsageError

    class IPythonCoreError(Exception):
        pass

    class TryNext(IPythonCoreError):
        pass

    class StdinNotImplementedError(IPythonCoreError, NotImplementedError):
        pass

    return dict(
        UsageError=UsageError,
        IPythonCoreError=IPythonCoreError,
        TryNext=TryNext,
        StdinNotImplementedError=StdinNotImplementedError,
    )


def printing():
    from . import pretty
    from .formatters import display_formatter

    text = display_formatter.formatters["text/plain"]

    def pprint(value, *_, **options):
        print(pretty.pretty(value, text.printer, **options))

    return dict(
        PrettyPrinter=pretty.Printer,
        RepresentationPrinter=pretty.Printer,
        pretty=lambda value, *_, **options: pretty.pretty(value, text.printer, **options),
        pprint=pprint,
        for_type=text.for_type,
        for_type_by_name=text.for_type_by_name,
    )


def plots():
    from . import figures, inline

    def print_figure(fig, fmt="png", bbox_inches="tight", base64=False, **_):
        from base64 import b64encode

        _, form, scale = inline.FORMS[fmt]
        data = figures.picture(fig, form, scale)
        return b64encode(data).decode() if base64 else data

    def figsize(sizex, sizey):
        from matplotlib import rcParams

        rcParams["figure.figsize"] = [sizex, sizey]

    return dict(select_figure_formats=inline.select_formats, print_figure=print_figure, figsize=figsize)


def completion():
    class IPCompleter:
        """There is nobody who types."""

    return dict(IPCompleter=IPCompleter)


def pages():
    return dict(page=lambda strng, *_, **__: print(strng))


def formulas():
    def latex_to_png(s, encode=False, backend=None, wrap=False, color="Black", scale=1.0):
        """A formula as matplotlib draws it; None for one that it cannot draw."""
        from base64 import encodebytes
        from io import BytesIO

        try:
            from matplotlib import mathtext
            from matplotlib.font_manager import FontProperties
        except ImportError:
            return None
        formula = s.replace("$$", "$")
        formula = "$%s$" % formula if wrap else formula
        file = BytesIO()
        try:
            size = FontProperties(size=12)
            mathtext.math_to_image(formula, file, size, dpi=120 * scale, format="png", color=color)
        except (ValueError, RuntimeError):
            return None
        return encodebytes(file.getvalue()) if encode else file.getvalue()

    return dict(latex_to_png=latex_to_png)


def backends():
    from . import inline

    return dict(set_matplotlib_formats=inline.set_formats, set_matplotlib_close=inline.set_close)


def captures():
    from . import capturing

    return dict(capture_output=capturing.capture_output, CapturedIO=capturing.Captured)


# The modules, and what gives them their names; packages have none of their own.
MODULES = {
    "IPython": top,
    "IPython.core": dict,
    "IPython.core.completer": completion,
    "IPython.core.display": displays,
    "IPython.core.display_functions": displays,
    "IPython.core.error": failures,
    "IPython.core.formatters": formats,
    "IPython.core.getipython": getting,
    "IPython.core.interactiveshell": shells,
    "IPython.core.magic": magics,
    "IPython.core.page": pages,
    "IPython.core.pylabtools": plots,
    "IPython.display": displays,
    "IPython.lib": dict,
    "IPython.lib.display": displays,
    "IPython.lib.latextools": formulas,
    "IPython.lib.pretty": printing,
    "IPython.terminal": dict,
    "IPython.terminal.interactiveshell": terminals,
    "IPython.utils": dict,
    "IPython.utils.capture": captures,
    "IPython.utils.io": captures,
    "matplotlib_inline": dict,
    "matplotlib_inline.backend_inline": backends,
}
PACKAGES = {name.rpartition(".")[0] for name in MODULES} - {""} | {"IPython"}


class StandIn:
    """Their loader."""

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        vars(module).update(MODULES[module.__name__]())


def find_spec(module):
    return ModuleSpec(module, StandIn(), is_package=module in PACKAGES)
