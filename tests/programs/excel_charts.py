import xlsxwriter

with xlsxwriter.Workbook("chart.xlsx") as book:
    sheet = book.add_worksheet("Data")
    bold = book.add_format({"bold": True, "num_format": "#,##0.00"})
    sheet.write_row(0, 0, ["month", "sales"], bold)
    for row, (month, sales) in enumerate([("Jan", 10), ("Feb", 20)], start=1):
        sheet.write(row, 0, month)
        sheet.write(row, 1, sales)
    chart = book.add_chart({"type": "line"})
    chart.add_series({"categories": "=Data!$A$2:$A$3", "values": "=Data!$B$2:$B$3"})
    sheet.insert_chart("D2", chart)
print("written")
