import re
from collections import Counter

LOG = """10.0.0.1 - - [01/Jan/2024:10:00:00] "GET /a HTTP/1.1" 200 512
10.0.0.2 - - [01/Jan/2024:10:00:01] "POST /b HTTP/1.1" 404 0
10.0.0.1 - - [01/Jan/2024:10:00:02] "GET /a HTTP/1.1" 200 128
broken line"""
pattern = re.compile(r'^(?P<ip>\S+) .*? "(?P<verb>[A-Z]+) (?P<path>\S+)[^"]*" (?P<status>\d{3}) (?P<size>\d+)$')
hits = [m.groupdict() for line in LOG.splitlines() if (m := pattern.match(line))]
print(Counter(hit["status"] for hit in hits).most_common())
print(sum(int(hit["size"]) for hit in hits), len(LOG.splitlines()) - len(hits))
