# What only some code wants: compiled when it is first called for, in the
# globals that all parts of the shim share.


def codes_by_tree():
    """What codes() of shim.py gives, by way of the syntax tree."""
    allow, as_tree = 0x2000, 0x400  # `await`; compile() to a tree
    tree = compile(source, name, "exec", allow | as_tree, True)
    last = tree.body[-1] if tree.body else None
    if type(last).__name__ != "Expr" or semicolon_follows(last):
        return [compile(tree, name, "exec", allow, True)]
    tree.body.pop()
    first = compile(tree, name, "exec", allow, True)
    future = first.co_flags & 0x1FE0000  # its `from __future__ import …`
    # An expression's tree to put this one into, without importing its type.
    tree = compile("0", name, "eval", as_tree, True)
    tree.body = last.value
    return [first, compile(tree, name, "eval", allow | future, True)]


def semicolon_follows(last):
    lines = source.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    rest = b"\n".join(lines[last.end_lineno - 1 :])[last.end_col_offset :]
    return rest.lstrip(b" \t\f\\\n").startswith(b";")


def awaiting(codes, scope):
    """An iterator that evaluates the code objects in one event loop, and gives
    the last one's value."""
    import asyncio

    async def run():
        for code in codes:
            value = eval(code, scope)
            if code.co_flags & 0x80:
                value = await value
        return value

    return map(asyncio.run, [run()])


def decoded():
    """The code as text."""
    try:
        return sys.modules["_frozen_importlib_external"].decode_source(source)
    except (LookupError, SyntaxError, UnicodeError):
        return source.decode("utf-8", "replace")
