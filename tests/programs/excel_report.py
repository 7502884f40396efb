import pandas as pd
from openpyxl import load_workbook
from openpyxl.styles import Font

df = pd.DataFrame({"item": ["pen", "book"], "price": [1.5, 12.0], "quantity": [10, 2]})
df["total"] = df["price"] * df["quantity"]
with pd.ExcelWriter("report.xlsx", engine="openpyxl") as writer:
    df.to_excel(writer, sheet_name="Items", index=False)
wb = load_workbook("report.xlsx")
ws = wb["Items"]
for cell in ws[1]:
    cell.font = Font(bold=True)
ws["D4"] = "=SUM(D2:D3)"
wb.save("report.xlsx")
print(pd.read_excel("report.xlsx", sheet_name="Items").head(2).to_csv(index=False), end="")
