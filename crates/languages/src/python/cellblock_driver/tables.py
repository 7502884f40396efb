"""Tables as columns and rows, and single values as JSON has them."""

import json

ROWS, COLUMNS, CELLS = 1000, 100, 20000
TEXT = 2000  # characters of a value
TABLE, VALUES = 768 << 10, 50000  # bytes of JSON, and values in it


def of_pandas(frame):
    return fitted(pandas_table, frame)


def of_polars(frame):
    return fitted(polars_table, frame)


def fitted(table, frame):
    """The table with as many of its first rows as fit."""
    columns = min(frame.shape[1] if len(frame.shape) > 1 else 1, COLUMNS)
    rows = max(1, min(frame.shape[0], ROWS, CELLS // max(columns, 1)))
    while True:
        data = table(frame, rows, columns)
        written = json.dumps(data)
        if rows == 1 or (len(written) <= TABLE and written.count(",") <= VALUES):
            return data
        rows //= 2


def pandas_table(frame, rows, columns):
    cut = []
    if len(frame.shape) == 1:
        head = frame.iloc[:rows]
        names, lists, kinds = [frame.name], [head.tolist()], [frame.dtype]
    else:
        head = frame.iloc[:rows, :columns]
        names, kinds = head.columns.tolist(), head.dtypes.tolist()
        lists = [head.iloc[:, at].tolist() for at in range(len(names))]
    data = table_of(frame, names, kinds, lists, len(head), cut)
    index = head.index
    if type(index).__name__ != "RangeIndex" or index.tolist() != list(range(len(head))):
        data["index"] = [plain(value, cut) for value in index.tolist()]
        if any(name is not None for name in index.names):
            data["index_names"] = [plain(name, cut) for name in index.names]
    return stated(data, cut)


def polars_table(frame, rows, columns):
    cut, head = [], frame.head(rows)
    if len(frame.shape) == 1:
        names, kinds, lists = [frame.name], [frame.dtype], [head.to_list()]
    else:
        names, kinds = frame.columns[:columns], frame.dtypes[:columns]
        lists = [head[name].to_list() for name in names]
    return stated(table_of(frame, names, kinds, lists, len(head), cut), cut)


def table_of(frame, names, kinds, lists, count, cut):
    lists = [[plain(value, cut) for value in values] for values in lists]
    return {
        "columns": [plain(name, cut) for name in names],
        "types": [str(kind)[:100] for kind in kinds],
        "rows": [list(row) for row in zip(*lists)] if lists else [[]] * count,
        "total_rows": frame.shape[0],
        "total_columns": frame.shape[1] if len(frame.shape) > 1 else 1,
    }


def stated(data, cut):
    if cut:
        data["shortened_values"] = len(cut)
    return data


def plain(value, cut=None, depth=3):
    """The value as JSON has it: missing and infinite ones are null, times are
    in ISO 8601, exact decimals are strings."""
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return value if -(1 << 63) <= value < 1 << 64 else clip(str(value), cut)
    if kind is float:
        return value if value - value == 0 else None
    if isinstance(value, str):
        return clip(value, cut)
    if kind.__name__ in ("NAType", "NaTType", "MaskedConstant"):
        return None
    if isinstance(value, (list, tuple)) and depth:
        return [plain(item, cut, depth - 1) for item in few(value, cut)]
    if isinstance(value, dict) and depth:
        return {
            clip(str(key), cut): plain(item, cut, depth - 1)
            for key, item in few(value.items(), cut)
        }
    if kind.__module__ == "numpy":
        if kind.__name__ == "ndarray" and depth:
            return plain((value[:101] if value.size > 100 else value).tolist(), cut, depth)
        if kind.__name__ == "datetime64":
            return None if value != value else plain(value.astype("datetime64[us]").item())
        if hasattr(value, "item") and type(value.item()) is not kind:
            return plain(value.item(), cut, depth)
    if callable(getattr(value, "isoformat", None)):
        return clip(value.isoformat(), cut)
    return clip(str(value), cut)


def few(items, cut):
    items = list(items)
    if len(items) > 100 and cut is not None:
        cut.append(1)
    return items[:100]


def clip(value, cut):
    if str.__len__(value) <= TEXT:
        return str.__str__(value)
    if cut is not None:
        cut.append(1)
    return str.__getitem__(value, slice(0, TEXT)) + "…"
