from reportlab.lib import colors
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.platypus import Paragraph, SimpleDocTemplate, Spacer, Table, TableStyle
from pypdf import PdfReader

styles = getSampleStyleSheet()
rows = [["Item", "Qty", "Price"], ["Widget", "4", "10.00"], ["Gadget", "1", "25.50"]]
table = Table(rows)
table.setStyle(TableStyle([("GRID", (0, 0), (-1, -1), 0.5, colors.grey)]))
SimpleDocTemplate("invoice.pdf", pagesize=A4).build(
    [Paragraph("Invoice 42", styles["Title"]), Spacer(1, 12), table])
reader = PdfReader("invoice.pdf")
text = reader.pages[0].extract_text()
print(len(reader.pages), "Invoice 42" in text, "Gadget" in text)
