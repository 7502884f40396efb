"""What `%config InlineBackend`, and the functions for the same, set for pictures of figures."""

from . import session

# The names of forms, and what matplotlib calls them; the scale of the pictures.
FORMS = {
    "png": ("image/png", "png", 1),
    "retina": ("image/png", "png", 2),
    "png2x": ("image/png", "png", 2),
    "jpeg": ("image/jpeg", "jpeg", 1),
    "jpg": ("image/jpeg", "jpeg", 1),
    "svg": ("image/svg+xml", "svg", 1),
    "pdf": ("application/pdf", "pdf", 1),
}


def set(name, value):
    """Takes a setting by its name in IPython."""
    if name in ("figure_format", "figure_formats"):
        set_formats(*([value] if isinstance(value, str) else value))
    elif name == "print_figure_kwargs":
        session.settings[name] = dict(value)
    elif name == "close_figures":
        session.settings[name] = bool(value)
    elif name == "rc":
        from matplotlib import rcParams

        rcParams.update(value)


def set_formats(*formats, **options):
    """`set_matplotlib_formats`."""
    for form in formats:
        if form not in FORMS:
            raise ValueError("no form %r of figures; there are %s" % (form, ", ".join(FORMS)))
    session.settings["figure_formats"] = formats
    if options:
        session.settings["print_figure_kwargs"] = options


def set_close(close=True):
    """`set_matplotlib_close`: whether figures are closed at the end of an execution."""
    session.settings["close_figures"] = bool(close)


def select_formats(shell, formats, quality=None, **options):
    """`IPython.core.pylabtools.select_figure_formats`."""
    set_formats(*([formats] if isinstance(formats, str) else formats), **options)
