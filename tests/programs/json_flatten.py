import json


def flatten(value, prefix=""):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flatten(inner, f"{prefix}.{key}" if prefix else key)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from flatten(inner, f"{prefix}[{index}]")
    else:
        yield prefix, value


document = json.loads('{"a": {"b": [1, {"c": null}]}, "d": "é\\u20ac", "e": 1e3}')
flat = dict(flatten(document))
with open("flat.json", "w", encoding="utf-8") as out:
    json.dump(flat, out, ensure_ascii=False, indent=1)
print(flat)
