"""Charts of three dimensions: what is in the axes of mplot3d, and in plotly's scenes."""

from . import figures
from .rich import attempt
from .tables import clip, plain

POINTS = 1000  # of one series
SCENES = {"scatter3d": "scatter_3d", "mesh3d": "mesh", "streamtube": "stream_tubes"}


def charts_of(axes, left):
    """What is drawn in the same axes, by its type."""
    found = {"line_3d": [], "scatter_3d": [], "surface": [], "wireframe": []}
    for line in axes.get_lines():
        if hasattr(line, "get_data_3d"):
            dots = line.get_linestyle() in ("None", "none", " ", "")
            kind = "scatter_3d" if dots else "line_3d"
            found[kind].append(series(line.get_label(), line.get_data_3d(), left))
    for shape in axes.collections:
        label = figures.label_of(shape.get_label())
        if hasattr(shape, "_offsets3d"):
            found["scatter_3d"].append(series(label, shape._offsets3d, left))
        elif hasattr(shape, "_segments3d"):
            found["wireframe"].append({"label": label, "lines": len(shape._segments3d)})
        elif type(shape).__name__ == "Poly3DCollection":
            found["surface"].append({"label": label, "faces": attempt(faces, shape, "", {})})
    frame = {"title": clip(axes.get_title(), None)}
    for name, axis in ("x", axes.xaxis), ("y", axes.yaxis), ("z", axes.zaxis):
        frame.update(figures.axis_of(axis, name))
        frame[name + "_range"] = [plain(at) for at in sorted(axis.get_view_interval())]
    charts = []
    for kind, elements in found.items():
        if elements:
            kept = elements[: figures.SERIES]
            charts.append(dict(type=kind, **frame, elements=kept))
            if len(kept) < len(elements):
                charts[-1]["total_elements"] = len(elements)
    return charts or [dict(type="unknown", **frame, elements=[])]


def series(label, data, left):
    points = list(zip(*data))
    room = max(1, min(POINTS, left[0]))
    step = -(-len(points) // room) or 1
    element = {"label": label and figures.label_of(label)}
    element["points"] = [[plain(at) for at in point] for point in points[::step]]
    left[0] -= len(element["points"])
    if step > 1:
        element["total_points"] = len(points)
    return element


def faces(shape):
    """How many a surface has."""
    edges = getattr(shape, "_segslices", None)
    return len(shape._faces) if edges is None else len(edges)


def plotly_chart(figure):
    """The chart of a figure of plotly's that has traces in a scene; its values are those
    of the figure itself."""
    charts = {}
    for trace in figure.data:
        if not hasattr(trace, "scene") or not isinstance(trace.type, str):
            continue
        kind = SCENES.get(trace.type, trace.type)
        if kind == "scatter_3d" and trace.mode == "lines":
            kind = "line_3d"
        name = trace.scene or "scene"
        if (name, kind) not in charts:
            scene = figure.layout[name]
            charts[name, kind] = dict(type=kind, title="", elements=[])
            for axis in "xyz":
                label = clip(scene[axis + "axis"].title.text or "", None)
                charts[name, kind].update({axis + "_label": label, axis + "_unit": figures.unit(label)})
        elements = charts[name, kind]["elements"]
        if len(elements) < figures.SERIES:
            elements.append({"label": clip(trace.name, None) if trace.name else None})
    charts = list(charts.values())[: figures.SERIES]
    if not charts:
        return None
    title = clip(figure.layout.title.text or "", None)
    if len(charts) == 1:
        return dict(charts[0], title=title)
    return {"type": "superchart", "title": title, "elements": charts}
