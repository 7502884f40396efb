from pptx import Presentation
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches

prs = Presentation()
slide = prs.slides.add_slide(prs.slide_layouts[5])
slide.shapes.title.text = "Results"
data = CategoryChartData()
data.categories = ["Q1", "Q2"]
data.add_series("Sales", (19.2, 21.4))
slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, Inches(1), Inches(2), Inches(6), Inches(4), data)
prs.save("results.pptx")
print(len(Presentation("results.pptx").slides), slide.shapes.title.text)
