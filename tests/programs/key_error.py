import json

config = json.loads('{"host": "h"}')
print(config["host"])
print(config["port"])
