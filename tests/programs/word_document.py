from docx import Document
from docx.shared import Pt

doc = Document()
doc.add_heading("Minutes", level=1)
p = doc.add_paragraph("Present: ")
p.add_run("Ann, Bob").bold = True
table = doc.add_table(rows=1, cols=2)
table.style = "Light Grid Accent 1"
table.rows[0].cells[0].text, table.rows[0].cells[1].text = "Task", "Owner"
for task, owner in [("write", "Ann"), ("check", "Bob")]:
    cells = table.add_row().cells
    cells[0].text, cells[1].text = task, owner
doc.save("minutes.docx")
again = Document("minutes.docx")
print([p.text for p in again.paragraphs], len(again.tables[0].rows))
