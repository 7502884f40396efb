from bs4 import BeautifulSoup

html = """<table id="t"><tr><th>Name</th><th>Age</th></tr>
<tr><td>Ann</td><td>31</td></tr><tr><td>Bob</td><td>27</td></tr></table>
<a href="/x?a=1&amp;b=2">link</a>"""
soup = BeautifulSoup(html, "html.parser")
rows = [[cell.get_text() for cell in tr.find_all(["td", "th"])] for tr in soup.select("#t tr")]
print(rows)
print(soup.a["href"])
