"""How results look in a notebook.

What code in a cell produced is hostile: a notebook would run the scripts of its HTML with the
rights of the user who looks at it. So HTML is shown in a frame without scripts, origin or
network, SVG as a picture, and forms whose viewers interpret them (JavaScript, Vega, widgets,
Markdown, LaTeX) not at all: those have their text.
"""

from __future__ import annotations

import base64
import binascii
import html
from collections.abc import Mapping
from typing import Any, Optional

#: Forms that are pictures and nothing else.
PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; font-src data:"
_TEXT = "white-space:pre-wrap;margin:0"


def bundle(formats: Mapping[str, Any], text: Optional[str]) -> dict[str, Any]:
    """What a notebook may get."""
    found: dict[str, Any] = {"text/plain": text or "", "text/html": of_result(formats, text)}
    for kind in PICTURES[:2]:
        picture = _picture(formats, kind)
        if picture is not None:
            found[kind] = picture
    return found


def of_result(formats: Mapping[str, Any], text: Optional[str]) -> str:
    """The best form of a result that is safe to show, as HTML."""
    for kind in PICTURES:
        picture = _picture(formats, kind)
        if picture is not None:
            return f'<img src="data:{kind};base64,{picture}">'
    svg = formats.get("image/svg+xml")
    if isinstance(svg, str):
        coded = base64.b64encode(svg.encode(errors="replace")).decode()
        return f'<img src="data:image/svg+xml;base64,{coded}">'
    page = formats.get("text/html")
    if isinstance(page, str):
        policy = f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        source = html.escape(policy + page)
        style = "width:100%;height:20em;border:0;resize:vertical;background:white"
        return f'<iframe sandbox srcdoc="{source}" style="{style}"></iframe>'
    return _pre(text or "")


def of_record(record: Mapping[str, Any]) -> str:
    """A run: its output, its values, and what went wrong."""
    parts = [_pre(record.get("stdout")), _pre(record.get("stderr"), "color:#a00")]
    for item in record.get("results") or ():
        parts.append(of_result(item.get("formats") or {}, item.get("text")))
    error = record.get("error")
    if error:
        parts.append(_pre("\n".join(error["traceback"]), "color:#a00"))
    if record.get("outcome") != "ok":
        parts.append(_pre(record.get("context"), "font-style:italic"))
    return "\n".join(part for part in parts if part)


def plain(record: Mapping[str, Any]) -> str:
    """The same as text."""
    parts = [record.get("stdout"), record.get("stderr")]
    parts += [item.get("text") for item in record.get("results") or ()]
    error = record.get("error")
    if error:
        parts.append("\n".join(error["traceback"]))
    if record.get("outcome") != "ok":
        parts.append(record.get("context"))
    return "\n".join(part.rstrip("\n") for part in parts if part)


def _picture(formats: Mapping[str, Any], kind: str) -> Optional[str]:
    """A picture in base64 that is nothing but that."""
    form = formats.get(kind)
    if not isinstance(form, str):
        return None
    try:
        return base64.b64encode(base64.b64decode("".join(form.split()), validate=True)).decode()
    except binascii.Error:
        return None


def _pre(text: Optional[str], style: str = "") -> str:
    if not text:
        return ""
    return f'<pre style="{_TEXT};{style}">{html.escape(text)}</pre>'
