"""`display()` with options, handles, updates and clears."""

import os

from . import protocol, results
from .protocol import TEXT, text


class DisplayHandle:
    """Stands for what was displayed under one name."""

    def __init__(self, display_id=None):
        self.display_id = new_id() if display_id is None else display_id

    def __repr__(self):
        return "<DisplayHandle display_id=%s>" % self.display_id

    def display(self, obj, **options):
        """Displays a further result under this name."""
        display_with((obj,), display_id=self.display_id, **options)

    def update(self, obj, **options):
        """Replaces what was displayed under this name."""
        update_display(obj, display_id=self.display_id, **options)


def new_id():
    return os.urandom(16).hex()


def display_with(
    values,
    include=None,
    exclude=None,
    metadata=None,
    transient=None,
    display_id=None,
    raw=False,
    clear=False,
    update=False,
    **_,
):
    from . import rich

    name = display_id or (transient or {}).get("display_id")
    if name is True:
        name = new_id()
    if update and not name:
        raise TypeError("display_id required for update_display")
    if clear:
        clear_output(wait=True)
    for value in values:
        is_bundle = raw and isinstance(value, dict)
        fields = rich.fields(value, is_bundle, metadata, include, exclude)
        if fields is None:
            continue
        if name:
            fields.append((TEXT, "display_id", text(str(name), 200)))
        results.send("update" if update else "result", value, fields)
    return DisplayHandle(name) if name and not update else None


def update_display(obj, *, display_id, **options):
    """Replaces what was displayed under that name."""
    display_with((obj,), display_id=display_id, update=True, **options)


def publish_display_data(data, metadata=None, *_, transient=None, update=False, **__):
    """Displays a bundle of media types as it is."""
    display_with((data,), metadata=metadata, transient=transient, update=update, raw=True)


def clear_output(wait=False):
    """Takes back what was displayed; what was printed stays."""
    protocol.channel.send("clear", *([(TEXT, "wait", b"1")] if wait else []))
