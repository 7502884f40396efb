"""matplotlib's figures, as pictures and as the data behind them."""

import functools
import io
import sys
from weakref import WeakKeyDictionary, WeakSet, ref

from . import results, session
from .rich import attempt
from .tables import clip, plain

boxes = WeakKeyDictionary()  # the numbers of box plots, by their axes
box_lines = WeakSet()  # what they are drawn with

# Of a figure: axes, and lines of each; points of all lines, and of one line.
SERIES, POINTS, LINE = 50, 8000, 1000
drawn = []  # weak references to figures that were shown and may not have changed


def show_figures(*_, **__):
    """What `plt.show()` does: the figures are results, and are closed."""
    show_open()
    pyplot_figures().destroy_all()


def show_figure(figure, *_, **__):
    """What `Figure.show()` does."""
    results.show(figure)
    for manager in pyplot_figures().get_all_fig_managers():
        if manager.canvas.figure is figure:
            pyplot_figures().destroy(manager.num)


def show_open():
    """Shows the open figures that were not shown as they are."""
    for manager in pyplot_figures().get_all_fig_managers():
        figure = manager.canvas.figure
        is_empty = not figure.axes and not figure.lines and not figure.texts
        is_shown = not figure.stale and any(old() is figure for old in drawn)
        if not is_empty and not is_shown:
            results.show(figure)


def show_rest():
    """Shows the open figures at the end of the code, come what may, and closes them: the next
    execution begins a new one."""
    try:
        show_open()
    except Exception:
        pass
    if session.settings.get("close_figures", True):
        pyplot_figures().destroy_all()


session.before_done.append(show_rest)
session.show_figures = show_rest


def pyplot_figures():
    return sys.modules["matplotlib._pylab_helpers"].Gcf


def figure_forms(figure, bundle, failed, about):
    from .inline import FORMS

    for name in session.settings.get("figure_formats", ("png",)):
        key, form, scale = FORMS[name]
        bundle[key] = data = picture(figure, form, scale)
        if scale > 1 and data[:4] == b"\x89PNG":
            sides = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
            about[key] = {"width": sides[0] // scale, "height": sides[1] // scale}
    bundle["chart"] = attempt(chart, figure, "chart", failed)
    drawn[:] = [old for old in drawn if old() is not None]
    drawn.append(ref(figure))
    figure.stale = False


def picture(figure, form, scale):
    if figure.canvas is None:
        sys.modules["matplotlib.backend_bases"].FigureCanvasBase(figure)
    file = io.BytesIO()
    options = {
        "format": form,
        "dpi": figure.dpi * scale,
        "facecolor": figure.get_facecolor(),
        "edgecolor": figure.get_edgecolor(),
        "bbox_inches": "tight",
    }
    figure.canvas.print_figure(file, **{**options, **session.settings.get("print_figure_kwargs", {})})
    return file.getvalue()


def chart(figure):
    """The data behind a figure, in the terms of E2B's charts."""
    left = [POINTS, POINTS]  # for points, for all else
    charts = []
    for axes in figure.axes[:SERIES]:
        # A colour bar belongs to other axes.
        if axes.get_visible() and getattr(axes, "_colorbar", None) is None:
            charts += charts_of(axes, left)
    title = getattr(figure, "_suptitle", None)
    title = title.get_text() if title else ""
    if len(charts) == 1:
        charts[0]["title"] = charts[0]["title"] or title
        return charts[0]
    chart = {"type": "superchart", "title": clip(title, None), "elements": charts}
    if len(figure.axes) > SERIES:
        chart["total_axes"] = len(figure.axes)
    return chart


def charts_of(axes, left):
    """What is drawn in the same axes, by its type."""
    if hasattr(axes, "get_zlim"):
        from . import solids

        return solids.charts_of(axes, left)
    found = {"pie": [], "box_and_whisker": [], "bar": [], "scatter": [], "line": []}
    found["pie"] = slices(axes)
    found["box_and_whisker"] = box_elements(axes)
    found["bar"] = bars(axes)
    for line in axes.get_lines():
        add_line(axes, line, line.get_label(), found, left)
    for container in axes.containers:
        line = getattr(container, "markerline", getattr(container, "lines", (None,))[0])
        if line is not None:
            add_line(axes, line, container.get_label(), found, left)
    for dots in axes.collections:
        if type(dots).__name__ == "PathCollection":
            x, y = dots.get_offsets().T
            add_series(found["scatter"], dots.get_label(), x, y, left, axes)
    if found["bar"]:
        # How sure their values are, as seaborn draws it.
        found["line"] = [line for line in found["line"] if not line or not is_mark(line)]
    frame = {"title": clip(axes.get_title() or axes.get_title("left"), None)}
    frame.update(axis_of(axes.xaxis, "x"))
    frame.update(axis_of(axes.yaxis, "y"))
    charts = []
    for kind, elements in found.items():
        kept = [element for element in elements if fits(element, left)]
        if elements:
            charts.append(dict(type=kind, **frame, elements=kept))
        if len(kept) < len(elements):
            charts[-1]["total_elements"] = len(elements)
    return charts or [dict(type="unknown", **frame, elements=[])]


def is_mark(line):
    """Whether nobody named it, and it only goes up or across."""
    xs, ys = zip(*line["points"])
    return line["label"] is None and (len(set(xs)) == 1 or len(set(ys)) == 1)


def fits(element, left):
    """Whether there is room for an element. Points were counted when they were
    taken; a series for which there was no room is none."""
    if element is None or "points" in element:
        return element is not None
    left[1] -= 3 + len(element.get("outliers", ()))
    return left[1] >= 0


def axis_of(axis, name):
    label = clip(axis.get_label_text(), None)
    low, high = sorted(axis.get_view_interval())
    ticks = zip(axis.get_majorticklocs(), axis.get_majorticklabels())
    ticks = [(at, text.get_text()) for at, text in ticks if low <= at <= high][:100]
    return {
        name + "_label": label,
        name + "_unit": unit(label),
        name + "_scale": scale(axis),
        name + "_ticks": [plain(at) for at in on_axis(axis, [at for at, _ in ticks])],
        name + "_tick_labels": [tick_label(text) for _, text in ticks],
    }


def tick_label(text):
    if text.startswith("$\\mathdefault{") and text.endswith("}$"):
        text = text[14:-2]
    return clip(text, None)


def unit(label):
    """The `km` of `distance (km)` or `distance [km]`."""
    label = label.rstrip()
    for opening, closing in ("()", "[]"):
        if label.endswith(closing) and opening in label[1:]:
            return label[label.rindex(opening) + 1 : -1].strip() or None
    return None


def scale(axis):
    if type(getattr(axis, "units", None)).__name__ == "UnitData":
        return "categorical"
    locator = axis.get_major_locator()
    # Those of pandas have a `freq`.
    if type(locator).__module__ == "matplotlib.dates" or hasattr(locator, "freq"):
        return "datetime"
    return axis.get_scale()


def on_axis(axis, values):
    """Numbers as what they stand for on that axis."""
    kind, values = scale(axis), list(values)
    if kind == "datetime":
        values = [date(axis, value) if is_number(value) else value for value in values]
    if kind == "categorical":
        names = {at: name for name, at in axis.units._mapping.items()}
        values = [names.get(value, value) for value in values]
    return values


def is_number(value):
    return isinstance(value, (int, float, sys.modules["numpy"].number))


def date(axis, number):
    freq = getattr(axis.get_major_locator(), "freq", None)
    if freq is not None:  # pandas counts periods
        return sys.modules["pandas"].Period(ordinal=int(number), freq=freq).to_timestamp()
    return sys.modules["matplotlib.dates"].num2date(number).replace(tzinfo=None)


def label_of(label):
    label = str(label)
    return None if label.startswith("_") else clip(label, None)


def add_line(axes, line, label, found, left):
    # Not those across the whole axes, nor the parts of boxes, error bars and
    # stems, which have no label that anybody is to read.
    is_part = line in box_lines or label == "_nolegend_"
    if is_part or line.get_transform() is not axes.transData:
        return
    dots = line.get_linestyle() in ("None", "none", " ", "")
    xs, ys = line.get_xdata(orig=True), line.get_ydata(orig=True)
    add_series(found["scatter" if dots else "line"], label, xs, ys, left, axes)


def add_series(elements, label, xs, ys, left, axes):
    count = min(len(xs), len(ys))
    if not count:
        return
    if len(elements) >= SERIES or left[0] <= 0:
        elements.append(None)  # left out, but counted
        return
    step = -(-count // max(1, min(LINE, left[0])))
    xs = on_axis(axes.xaxis, xs[:count:step])
    ys = on_axis(axes.yaxis, ys[:count:step])
    left[0] -= len(xs)
    points = [[plain(x), plain(y)] for x, y in zip(xs, ys)]
    elements.append({"label": label_of(label), "points": points})
    if step > 1:
        elements[-1]["total_points"] = count


def bars(axes):
    elements = []
    for container in axes.containers:
        if type(container).__name__ != "BarContainer":
            continue
        lies = getattr(container, "orientation", None) == "horizontal"
        axis = axes.yaxis if lies else axes.xaxis
        spans = []
        for bar in container.patches:
            x, y = (bar.get_x(), bar.get_width()), (bar.get_y(), bar.get_height())
            (start, width), (_, value) = (y, x) if lies else (x, y)
            spans.append((start, start + width, value))
        labels = bar_labels(axis, spans)
        group = label_of(container.get_label())
        for label, (_, _, value) in zip(labels, spans):
            elements.append({"label": label, "group": group, "value": plain(value)})
    return elements


def bar_labels(axis, spans):
    width = max((abs(end - start) for start, end, _ in spans), default=0)
    if len(spans) > 1 and scale(axis) == "linear":
        # Those of a histogram touch.
        ends = zip(spans, spans[1:])
        if all(abs(one[1] - two[0]) < width * 1e-6 for one, two in ends):
            return ["%g – %g" % span[:2] for span in spans]
    ticks, labels = labelled_ticks(axis), []
    for start, end, _ in spans:
        middle = (start + end) / 2
        labels.append(nearest(ticks, middle, start, end) or "%g" % middle)
    return labels


def labelled_ticks(axis):
    ticks = zip(axis.get_majorticklocs(), axis.get_majorticklabels())
    return [(at, tick_label(text.get_text())) for at, text in ticks][:POINTS]


def nearest(ticks, at, low, high):
    """The label of the nearest tick between those two, or none."""
    near = [(abs(at - tick), label) for tick, label in ticks if low <= tick <= high]
    return min(near)[1] if near else ""


def slices(axes):
    return [
        {
            "label": label_of(wedge.get_label()),
            # Without the error of a difference: 324, not 323.99999999999994.
            "angle": plain(round(wedge.theta2 - wedge.theta1, 6)),
            "radius": plain(wedge.r),
        }
        for wedge in axes.patches
        if type(wedge).__name__ == "Wedge"
    ]


def note_boxes(bxp):
    """Keeps the numbers that a box plot is drawn from."""

    def noting(self, *arguments, **options):
        artists = bxp(self, *arguments, **options)
        try:
            stats = list(arguments[0] if arguments else options["bxpstats"])[:POINTS]
            at = arguments[1] if len(arguments) > 1 else options.get("positions")
            at = range(1, len(stats) + 1) if at is None else list(at)
            lies = options.get("orientation") == "horizontal" or options.get("vert") is False
            boxes.setdefault(self, []).extend(
                (box(stat), position, lies) for stat, position in zip(stats, at)
            )
            for lines in artists.values():
                box_lines.update(lines)
        except Exception:
            pass  # there is no chart then
        return artists

    return functools.wraps(bxp)(noting)


def box_elements(axes):
    elements = []
    by_place = {}
    for element, at, lies in boxes.get(axes, ()):
        if not element["label"]:
            axis = axes.yaxis if lies else axes.xaxis
            element["label"] = nearest(labelled_ticks(axis), at, at - 0.5, at + 0.5)
        # Boxes that are drawn again, in other colours, hide those from before.
        others = by_place.setdefault(at, [])
        if element not in others:
            others.append(element)
            elements.append(element)
    return elements


def box(stats):
    names = ("whislo", "q1", "med", "q3", "whishi")
    keys = ("min", "first_quartile", "median", "third_quartile", "max")
    numbers = {key: plain(float(stats[name])) for key, name in zip(keys, names)}
    outliers = [plain(value) for value in list(stats.get("fliers", ()))[:100]]
    return {"label": clip(str(stats.get("label", "")), None), **numbers, "outliers": outliers}

