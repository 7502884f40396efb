"""Does rain make the harvest? Runs in a cell, with harvest.csv beside it.

With pandas and matplotlib where they are (`--rootfs python-data`), else with the
standard library and a plot made by hand. What it shows is in the record: the
table as data, the plot as a picture.
"""

import csv
import statistics

ROWS = [
    (int(row["year"]), float(row["rain_mm"]), float(row["yield_t"]))
    for row in csv.DictReader(open("harvest.csv", newline=""))
]
RAIN = [rain for _, rain, _ in ROWS]
YIELD = [crop for *_, crop in ROWS]
SLOPE, START = statistics.linear_regression(RAIN, YIELD)
FIT = statistics.correlation(RAIN, YIELD) ** 2

print(f"{len(ROWS)} years, {SLOPE * 100:.2f} t for each 100 mm of rain, R² = {FIT:.2f}")


def with_libraries():
    import matplotlib.pyplot as plt
    import pandas

    frame = pandas.DataFrame(ROWS, columns=["year", "rain (mm)", "yield (t)"]).set_index("year")
    figure, axes = plt.subplots(figsize=(7, 4))
    axes.scatter(RAIN, YIELD, label="years")
    line = [min(RAIN), max(RAIN)]
    axes.plot(line, [START + SLOPE * rain for rain in line], color="#a11a20", label="fit")
    axes.set(title="Rain and harvest", xlabel="rain (mm)", ylabel="yield (t)")
    axes.legend()
    plt.show()
    return frame.describe().round(2)


class Plot:
    """A scatter plot as SVG."""

    WIDTH, HEIGHT, EDGE = 640, 360, 48

    def _place(self, rain, crop):
        def along(value, values, length):
            low, high = min(values), max(values)
            return (value - low) / (high - low) * (length - 2 * self.EDGE) + self.EDGE

        return along(rain, RAIN, self.WIDTH), self.HEIGHT - along(crop, YIELD, self.HEIGHT)

    def _repr_svg_(self):
        dots = "".join(
            '<circle cx="{:.1f}" cy="{:.1f}" r="4"/>'.format(*self._place(rain, crop))
            for _, rain, crop in ROWS
        )
        ends = [self._place(rain, START + SLOPE * rain) for rain in (min(RAIN), max(RAIN))]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in ends)
        base, top = self.HEIGHT - self.EDGE + 12, self.EDGE - 12
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.WIDTH} {self.HEIGHT}" '
            f'width="{self.WIDTH}" height="{self.HEIGHT}" font-family="sans-serif" font-size="13">'
            '<rect width="100%" height="100%" fill="#fff"/>'
            f'<path d="M36 {top}V{base}H{self.WIDTH - 36}" fill="none" stroke="#888"/>'
            f'<g fill="#3b76b5">{dots}</g>'
            f'<polyline points="{line}" stroke="#a11a20" stroke-width="2"/>'
            f'<text x="{self.WIDTH / 2}" y="{self.HEIGHT - 12}" text-anchor="middle">'
            f"rain, {min(RAIN):.0f} to {max(RAIN):.0f} mm</text>"
            f'<text x="16" y="{self.HEIGHT / 2}" text-anchor="middle" '
            f'transform="rotate(-90 16 {self.HEIGHT / 2})">'
            f"yield, {min(YIELD):.1f} to {max(YIELD):.1f} t</text></svg>"
        )


class Table:
    """Rows with names, in the form that tells the record of data."""

    def __init__(self, columns, rows):
        self.columns, self.rows = columns, rows

    def _repr_html_(self):
        cells = lambda tag, row: "".join(f"<{tag}>{cell}</{tag}>" for cell in row)
        rows = "".join(f"<tr>{cells('td', row)}</tr>" for row in self.rows)
        return f"<table border=1><tr>{cells('th', self.columns)}</tr>{rows}</table>"

    def __repr__(self):
        lines = [self.columns, *self.rows]
        return "\n".join("  ".join(f"{cell!s:>10}" for cell in line) for line in lines)


def with_the_standard_library():
    display(Plot())
    facts = [
        (name, min(values), round(statistics.fmean(values), 2), max(values))
        for name, values in (("rain (mm)", RAIN), ("yield (t)", YIELD))
    ]
    return Table(["", "least", "mean", "most"], facts)


try:
    import matplotlib, pandas
except ImportError:
    answer = with_the_standard_library()
else:
    answer = with_libraries()
answer
