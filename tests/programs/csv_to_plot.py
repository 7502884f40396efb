import csv
import io
from collections import defaultdict

import matplotlib.pyplot as plt

data = io.StringIO("month,region,sales\nJan,north,120\nJan,south,80\nFeb,north,150\nFeb,south,95\n")
totals = defaultdict(int)
for row in csv.DictReader(data):
    totals[row["month"]] += int(row["sales"])
print(dict(totals))
plt.figure(figsize=(6, 4))
plt.bar(list(totals), list(totals.values()))
plt.title("Sales by month")
plt.ylabel("units")
plt.tight_layout()
plt.savefig("sales.png", dpi=100)
plt.show()
