"""What `from IPython.display import …` gives where IPython is not installed. Its other modules are in
`standins`."""

import os
from base64 import b64encode
from html import escape

from . import inline
from .display import DisplayHandle, clear_output, display_with, publish_display_data, update_display
from .session import display


class DisplayObject:
    """Data of one media type, given as such, or by a file's name or an URL."""

    mime = "text/plain"
    binary = False

    def __init__(self, data=None, url=None, filename=None, metadata=None):
        if data is not None and not isinstance(data, (str, bytes)) and hasattr(data, "__fspath__"):
            filename, data = os.fspath(data), None
        elif isinstance(data, str) and data.startswith("http") and not url:
            url, data = data, None
        elif isinstance(data, str) and len(data) < 4096 and "\0" not in data:
            if not filename and os.path.isfile(data):
                filename, data = data, None
        self.data, self.url, self.filename = data, url, filename
        self.metadata = dict(metadata or {})
        self.reload()

    def reload(self):
        if self.filename is not None:
            with open(self.filename, "rb") as file:
                self.data = file.read()
        elif self.url is not None:
            from urllib.request import urlopen

            with urlopen(self.url) as answer:
                self.data = answer.read()
        if isinstance(self.data, bytes) and not self.binary:
            self.data = self.data.decode("utf-8", "replace")

    def _repr_mimebundle_(self, include=None, exclude=None):
        bundle = {"text/plain": repr(self)}
        if self.data is not None:
            bundle[self.mime] = self.data
        return bundle, {self.mime: self.metadata} if self.metadata else {}

    def __repr__(self):
        return "<IPython.core.display.%s object>" % type(self).__name__


class TextDisplayObject(DisplayObject):
    pass


class Pretty(TextDisplayObject):
    def __repr__(self):
        return str(self.data)


class HTML(TextDisplayObject):
    mime = "text/html"

    def __html__(self):
        return self.data


class Markdown(TextDisplayObject):
    mime = "text/markdown"


class Latex(TextDisplayObject):
    mime = "text/latex"


class Math(Latex):
    def _repr_mimebundle_(self, include=None, exclude=None):
        formula = "$\\displaystyle %s$" % self.data.strip("$")
        return {"text/plain": repr(self), "text/latex": formula}, {}


class SVG(DisplayObject):
    mime = "image/svg+xml"


class Javascript(TextDisplayObject):
    mime = "application/javascript"

    def __init__(self, data=None, url=None, filename=None, lib=None, css=None):
        super().__init__(data, url, filename)


class JSON(DisplayObject):
    mime = "application/json"

    def __init__(
        self, data=None, url=None, filename=None, expanded=False, metadata=None, root="root", **_
    ):
        metadata = {"expanded": expanded, "root": root, **(metadata or {})}
        super().__init__(data, url, filename, metadata)
        if isinstance(self.data, str):
            import json

            self.data = json.loads(self.data)


class GeoJSON(JSON):
    mime = "application/geo+json"


class Image(DisplayObject):
    binary = True
    KINDS = (
        (b"\x89PNG", "image/png"),
        (b"\xff\xd8", "image/jpeg"),
        (b"GIF8", "image/gif"),
        (b"RIFF", "image/webp"),
    )

    def __init__(
        self,
        data=None,
        url=None,
        filename=None,
        format=None,
        embed=None,
        width=None,
        height=None,
        retina=False,
        unconfined=False,
        metadata=None,
        alt=None,
    ):
        size = {"width": width, "height": height, "alt": alt, **(metadata or {})}
        size = {name: value for name, value in size.items() if value is not None}
        super().__init__(data, url, filename, size)
        start = bytes(self.data[:4]) if isinstance(self.data, (bytes, bytearray)) else b""
        kinds = [kind for magic, kind in self.KINDS if start.startswith(magic)]
        self.mime = kinds[0] if kinds else "image/" + (format or "png").replace("jpg", "jpeg")

    def reload(self):
        # A page may load it where this cell has no network.
        if self.url is None or self.filename is not None:
            super().reload()

    def _repr_mimebundle_(self, include=None, exclude=None):
        if self.data is None and self.url:
            return {"text/plain": repr(self), "text/html": tag("img", src=self.url)}, {}
        return super()._repr_mimebundle_()


class IFrame:
    def __init__(self, src, width, height, extras=None, **params):
        self.src, self.width, self.height = src, width, height
        if params:
            from urllib.parse import urlencode

            self.src += "?" + urlencode(params)

    def _repr_html_(self):
        return tag("iframe", src=self.src, width=self.width, height=self.height, end=True)


class YouTubeVideo(IFrame):
    def __init__(self, id, width=400, height=300, **params):
        super().__init__("https://www.youtube.com/embed/" + id, width, height, **params)


class Media(DisplayObject):
    binary = True

    def __init__(self, data=None, url=None, filename=None, mimetype=None, **_):
        if data is not None and not isinstance(data, (str, bytes)):
            raise TypeError("without IPython, the data of %s are bytes" % type(self).__name__)
        super().__init__(data, url, filename)
        self.mimetype = mimetype or self.usual

    def reload(self):
        if self.filename is not None:
            super().reload()

    def _repr_mimebundle_(self, include=None, exclude=None):
        source = self.url
        if self.data is not None:
            data = b64encode(self.data).decode()
            source = "data:%s;base64,%s" % (self.mimetype, data)
        html = tag(self.element, src=source, controls="controls", end=True)
        return {"text/plain": repr(self), "text/html": html}, {}


class Audio(Media):
    element, usual = "audio", "audio/wav"

    def __init__(self, data=None, filename=None, url=None, embed=None, rate=None, **_):
        super().__init__(data, url, filename)


class Video(Media):
    element, usual = "video", "video/mp4"


class FileLink:
    def __init__(self, path, *_, **__):
        self.path = str(path)

    def __repr__(self):
        return os.path.abspath(self.path)

    def _repr_html_(self):
        return tag("a", href=self.path) + escape(self.path) + "</a>"


class ProgressBar(DisplayObject):
    """A bar that is shown while one iterates over it, and changes with `progress`."""

    html_width, text_width = "60ex", 60

    def __init__(self, total):
        self.total = total
        self.handle = DisplayHandle()
        self._progress = 0

    def display(self):
        self.handle.display(self)

    def update(self):
        self.handle.update(self)

    @property
    def progress(self):
        return self._progress

    @progress.setter
    def progress(self, value):
        self._progress = value
        self.update()

    def __iter__(self):
        self.display()
        for self.progress in range(self.total):
            yield self.progress
        self.progress = self.total

    def __repr__(self):
        done = int(self.text_width * self.progress / self.total) if self.total else 0
        return "[%s] %d/%d" % (("=" * done).ljust(self.text_width), self.progress, self.total)

    def _repr_html_(self):
        style = "width:" + self.html_width
        return tag("progress", style=style, max=self.total, value=self.progress, end=True)

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/plain": repr(self), "text/html": self._repr_html_()}, {}


class Code(TextDisplayObject):
    def __init__(self, data=None, url=None, filename=None, language=None):
        super().__init__(data, url, filename)

    def __repr__(self):
        return str(self.data)

    def _repr_html_(self):
        return "<pre>%s</pre>" % escape(str(self.data))


def tag(name, end=False, **attributes):
    written = ['%s="%s"' % (key, escape(str(value))) for key, value in attributes.items()]
    return "<%s %s>" % (name, " ".join(written)) + ("</%s>" % name if end else "")


def displays(kind):
    def display_kind(*objects, raw=False, metadata=None):
        for item in objects:
            if raw:
                display_with(({kind.mime: item},), raw=True, metadata=metadata)
            else:
                display_with((item,), include=[kind.mime, "text/plain"], metadata=metadata)

    return display_kind


OBJECTS = (Audio, Code, DisplayHandle, DisplayObject, FileLink, GeoJSON, HTML, IFrame, Image)
OBJECTS += (JSON, Javascript, Latex, Markdown, Math, Pretty, ProgressBar, SVG, TextDisplayObject)
OBJECTS += (Video, YouTubeVideo)
NAMES = {kind.__name__: kind for kind in OBJECTS}
NAMES.update(
    display=display,
    clear_output=clear_output,
    publish_display_data=publish_display_data,
    update_display=update_display,
    set_matplotlib_close=inline.set_close,
    set_matplotlib_formats=inline.set_formats,
)
for kind in (HTML, JSON, Javascript, Latex, Markdown, Pretty, SVG):
    NAMES["display_" + kind.__name__.lower()] = displays(kind)
for kind in OBJECTS:
    is_elsewhere = kind in (Audio, Code, FileLink, IFrame, YouTubeVideo)
    kind.__module__ = "IPython.lib.display" if is_elsewhere else "IPython.core.display"
