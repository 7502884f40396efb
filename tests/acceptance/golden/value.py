import json

with open("out.txt", "w") as out:
    out.write("kept\n")
print("sum:", sum([1, 2]), json.dumps({"é": None}))
display({"a": 1})
[x * x for x in range(4)]
