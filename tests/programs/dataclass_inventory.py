from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import Enum
from functools import lru_cache, reduce
from itertools import groupby


class Kind(Enum):
    TOOL = "tool"
    TOY = "toy"


@dataclass(order=True)
class Item:
    price: float
    name: str = field(compare=False)
    kind: Kind = field(compare=False, default=Kind.TOOL)


items = sorted([Item(9.5, "hammer"), Item(3.0, "top", Kind.TOY), Item(5.25, "saw")])
for kind, group in groupby(sorted(items, key=lambda i: i.kind.value), key=lambda i: i.kind.value):
    print(kind, [i.name for i in group])


@lru_cache
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


print(fib(90), reduce(lambda a, b: a + b.price, items, 0))
asdict(items[0])
