"""Results in all the forms that an object has, by the conventions of Jupyter."""

import sys

from . import session
from .errors import complaint
from .protocol import BYTES, JSON, TEXT, text
from .results import LIMIT

BUDGET = 13 << 20  # bytes of all formats of one result

FORMS = (
    ("html", "text/html"),
    ("markdown", "text/markdown"),
    ("latex", "text/latex"),
    ("svg", "image/svg+xml"),
    ("png", "image/png"),
    ("jpeg", "image/jpeg"),
    ("pdf", "application/pdf"),
    ("json", "application/json"),
    ("javascript", "application/javascript"),
)


def figure_forms(figure, bundle, failed, about):
    from . import figures

    figures.figure_forms(figure, bundle, failed, about)


def pandas_forms(frame, bundle, failed, about):
    from . import tables

    bundle["data"] = attempt(tables.of_pandas, frame, "data", failed)


def polars_forms(frame, bundle, failed, about):
    from . import tables

    bundle["data"] = attempt(tables.of_polars, frame, "data", failed)


def styler_forms(styler, bundle, failed, about):
    pandas_forms(styler.data, bundle, failed, about)


def plotly_forms(figure, bundle, failed, about):
    import json

    bundle["application/vnd.plotly.v1+json"] = json.loads(figure.to_json())
    bundle["text/html"] = figure.to_html(full_html=False, include_plotlyjs="cdn")
    if any(hasattr(trace, "scene") for trace in figure.data):
        from . import solids

        bundle["chart"] = attempt(solids.plotly_chart, figure, "chart", failed)


def altair_forms(chart, bundle, failed, about):
    """altair's own renderer gives HTML that loads scripts; the chart's data say more."""
    spec = chart.to_dict()
    version = spec.get("$schema", "").rpartition("/v")[2].partition(".")[0] or "5"
    bundle["application/vnd.vegalite.v%s+json" % version] = spec
    html = attempt(lambda chart: chart._repr_mimebundle_(), chart, "text/html", failed)
    if isinstance(html, tuple):
        html = html[0]
    bundle.update(html or {})


def picture_forms(image, bundle, failed, about):
    """A picture of PIL's is a PNG; as a JPEG it would be there twice."""
    bundle["image/png"] = ask(image, "_repr_png_", failed, "image/png", {})
    if bundle["image/png"] is not None:
        bundle["image/jpeg"] = None


# Classes whose own forms are not all, or more, than is wanted here. None of their
# modules is imported for that.
KINDS = (
    ("matplotlib.figure", "Figure", figure_forms),
    ("pandas", "DataFrame", pandas_forms),
    ("pandas", "Series", pandas_forms),
    ("pandas.io.formats.style", "Styler", styler_forms),
    ("polars", "DataFrame", polars_forms),
    ("polars", "Series", polars_forms),
    ("plotly.basedatatypes", "BaseFigure", plotly_forms),
    ("altair", "TopLevelMixin", altair_forms),
    ("PIL.Image", "Image", picture_forms),
)



def fields(value, is_bundle=False, metadata=None, include=None, exclude=None):
    """The fields of a result frame; None if the object displays itself."""
    failed, about = {}, {}
    bundle = dict(value) if is_bundle else describe(value, failed, about)
    if bundle is None:
        return None
    if metadata:
        about.update(metadata)
    fields, budget = [], BUDGET
    for key, data in bundle.items():
        if type(key) is not str or len(key) > 100 or data is None:
            continue
        if (include and key not in include) or (exclude and key in exclude):
            continue
        try:
            field = pack(key, data, failed)
            budget -= len(field[2])
            if budget < 0:
                raise ValueError("more than %d bytes in one result" % BUDGET)
            fields.append(field)
        except Exception as error:
            failed[key] = complaint(error)
    if about:
        try:
            about = {key: about[key] for key in about if type(key) is str and about[key]}
            fields.append((JSON, "metadata", dumped(about, 64 << 10)))
        except Exception as error:
            failed["metadata"] = complaint(error)
    for key, reason in failed.items():
        fields.append((TEXT, "failed", text(key, 100) + b": " + reason))
    return fields


def describe(value, failed, about):
    """Media types and data, by the conventions of Jupyter, and `chart` and
    `data`; None if the object has displayed itself."""
    bundle = {}
    if session.formatters and given_forms(value, bundle, failed, about):
        return None
    given = dict(bundle)
    # A class's methods are not for the class itself, and an object that has
    # every attribute has none that means anything.
    canary = "_ipython_canary_method_should_not_exist_"
    if not isinstance(value, type) and ask(value, canary, {}, "", {}) is None:
        if not known_forms(value, bundle, failed, about):
            if ask(value, "_ipython_display_", failed, "_ipython_display_", {}, True):
                return None
            wanted = dict(include=None, exclude=None)
            data = ask(value, "_repr_mimebundle_", failed, "mimebundle", about, False, **wanted)
            if isinstance(data, dict):
                bundle.update(data)
        for method, key in FORMS:
            if key not in bundle:
                bundle[key] = ask(value, "_repr_%s_" % method, failed, key, about)
        if "text/plain" not in bundle and hasattr(type(value), "_repr_pretty_"):
            from . import pretty

            data = attempt(pretty.pretty, value, "text/plain", failed)
            bundle.update({} if data is None else {"text/plain": data})
    bundle.update(given)
    if session.formatters:
        active = session.formatters.formatters
        bundle = {key: bundle[key] for key in bundle if getattr(active.get(key), "enabled", True)}
    if "text/plain" not in bundle:
        try:
            bundle["text/plain"] = repr(value)
        except Exception as error:
            failed["text/plain"] = complaint(error)
            bundle["text/plain"] = "<unprintable %s object>" % type(value).__name__
    return bundle


def given_forms(value, bundle, failed, about):
    """Adds the forms for which there are functions of the code's own; whether one of them has
    displayed the object."""
    try:
        if session.formatters.shows(value):
            return True
        data = session.formatters.bundle(value)
        if isinstance(data, tuple):
            data, more = data
            about.update(more or {})
        bundle.update(data or {})
        given = session.formatters.given(value)
    except Exception as error:
        failed["formatters"] = complaint(error)
        return False
    for key, function in given.items():
        data = attempt(function, value, key, failed)
        if type(data) is tuple and len(data) == 2:
            data, more = data
            about[key] = more
        if data is not None:
            bundle[key] = data
    return False


def known_forms(value, bundle, failed, about):
    """Adds the forms of an object of one of the KINDS; whether it is one."""
    for module, name, function in KINDS:
        kind = getattr(sys.modules.get(module), name, None)
        try:
            if isinstance(kind, type) and issubclass(type(value), kind):
                function(value, bundle, failed, about)
                return True
        except Exception as error:
            failed[name] = complaint(error)
    return False


def ask(value, method, failed, key, about, shows=False, **keywords):
    """What a `_repr_*_` method gives; its metadata go to `about`."""
    try:
        function = getattr(value, method, None)
        if function is None:
            return None
        data = function(**keywords)
        if shows:
            return True
        if type(data) is tuple and len(data) == 2:
            data, more = data
            if isinstance(more, dict) and more:
                about.update(more if key == "mimebundle" else {key: more})
        return data
    except Exception as error:
        failed[key] = complaint(error)


def pack(key, data, failed):
    """The field of one format."""
    if key in ("chart", "data"):
        return JSON, key, dumped(data, 1 << 20)
    if isinstance(data, str):
        form, value = TEXT, text(data, LIMIT + 1)
    elif isinstance(data, (bytes, bytearray, memoryview)):
        if memoryview(data).nbytes > LIMIT:
            raise ValueError("more than %d bytes" % LIMIT)
        is_text = key.startswith("text/") or key == "image/svg+xml"
        form, value = TEXT if is_text else BYTES, bytes.join(b"", [data])
    elif key.startswith("application/") or "json" in key:
        form, value = JSON, dumped(data, LIMIT)
    else:
        raise TypeError("%s, and not text or bytes" % type(data).__name__)
    if len(value) > LIMIT:
        if key != "text/plain":
            raise ValueError("more than %d bytes" % LIMIT)
        failed[key] = b"cut to %d bytes" % LIMIT
        value = value[:LIMIT]
    return form, key, value


def dumped(data, limit):
    """JSON of at most that many bytes. Numbers that it cannot have are null."""
    import json

    try:
        written = json.dumps(data, allow_nan=False)
    except ValueError:
        finite = json.loads(json.dumps(data), parse_constant=lambda name: None)
        written = json.dumps(finite)
    value = text(written, limit + 1)
    if len(value) > limit:
        raise ValueError("more than %d bytes" % limit)
    return value


def attempt(function, value, key, failed):
    """What a function makes of a value; None and a note if it fails."""
    try:
        return function(value)
    except Exception as error:
        failed[key] = complaint(error)
        return None
