//! A chart as SVG: text of ours, finite numbers, escaped words.

use std::fmt::Write as _;

use record::terminal::escape;
use serde_json::Value;

use super::scale::{Scale, number};
use super::{Chart, Mark, NAMES, POINTS, SERIES, Series, Why};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 430.0;
/// The box of the axes: left, top, width, height.
const BOX: (f64, f64, f64, f64) = (80.0, 40.0, 510.0, 320.0);
/// Characters of a word.
const WORD: usize = 40;
/// Entries of the legend.
const LEGEND: usize = 16;
/// Colours that are told apart with most kinds of sight (Okabe and Ito's).
const COLOURS: [&str; 8] = [
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8a7f00", "#555555",
];

/// Draws a chart; what it leaves out is in a note.
pub(super) fn draw(mut chart: Chart) -> Result<(String, Option<String>), Why> {
    let is_pie = |series: &Series| series.mark == Mark::Slices;
    let mut notes = Vec::new();
    if chart.series.len() > SERIES {
        notes.push(format!(
            "{SERIES} of {} series are drawn",
            chart.series.len()
        ));
        chart.series.truncate(SERIES);
    }
    let count = |chart: &Chart| {
        chart
            .series
            .iter()
            .map(|one| one.x.len().min(one.y.len()))
            .sum()
    };
    let points: usize = count(&chart);
    if points > POINTS {
        let every = points.div_ceil(POINTS);
        notes.push(format!("every {every}th of {points} points is drawn"));
        for series in &mut chart.series {
            series.x = series.x.drain(..).step_by(every).collect();
            series.y = series.y.drain(..).step_by(every).collect();
        }
    }
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>"
    );
    words(
        &mut svg,
        (BOX.0 + BOX.2 / 2.0, 22.0),
        "middle\" font-size=\"15",
        &chart.title,
    );
    if chart.series.iter().any(is_pie) {
        match chart.series.as_slice() {
            [pie] => slices(&mut svg, pie)?,
            _ => return Err("several pies in one chart".to_owned()),
        }
    } else {
        axes(&mut svg, &chart)?;
        let mut named: Vec<&str> = Vec::new();
        for series in &chart.series {
            if !series.name.is_empty() && !named.contains(&series.name.as_str()) {
                named.push(&series.name);
            }
        }
        legend(&mut svg, &named);
    }
    svg.push_str("</svg>");
    Ok((svg, (!notes.is_empty()).then(|| notes.join("; "))))
}

fn axes(svg: &mut String, chart: &Chart) -> Result<(), Why> {
    let bars = chart
        .series
        .iter()
        .filter(|one| one.mark == Mark::Bars)
        .count();
    let (left, top, width, height) = BOX;
    let x = Scale::of(chart.series.iter().flat_map(|one| &one.x), false)?;
    let y = Scale::of(chart.series.iter().flat_map(|one| &one.y), bars > 0)?;
    for (at, name) in x.ticks() {
        let at = left + at * width;
        let (from, to) = (top + height, top + height + 5.0);
        line(svg, (at, from), (at, to), "#777777");
        words(svg, (at, to + 14.0), "middle", &name);
    }
    for (at, name) in y.ticks() {
        let at = top + (1.0 - at) * height;
        line(svg, (left, at), (left + width, at), "#e4e4e4");
        words(svg, (left - 8.0, at + 4.0), "end", &name);
    }
    line(
        svg,
        (left, top + height),
        (left + width, top + height),
        "#777777",
    );
    line(svg, (left, top), (left, top + height), "#777777");
    words(
        svg,
        (left + width / 2.0, HEIGHT - 18.0),
        "middle",
        &chart.x_label,
    );
    words(svg, (left - 66.0, top - 12.0), "start", &chart.y_label);
    let mut bar = 0;
    let mut colours: Vec<&str> = Vec::new();
    for series in &chart.series {
        // The line and the points of one name have one colour.
        let known = colours.iter().position(|name| *name == series.name);
        let index = known.unwrap_or(colours.len());
        if known.is_none() {
            colours.push(&series.name);
        }
        let colour = COLOURS[index % COLOURS.len()];
        let at = |(one, other): (&Value, &Value)| {
            Some((
                left + x.at(one)? * width,
                top + (1.0 - y.at(other)?) * height,
            ))
        };
        let points = series.x.iter().zip(&series.y).map(at);
        match series.mark {
            Mark::Line => lines(svg, points, colour),
            Mark::Points => points.flatten().for_each(|(x, y)| {
                let _ = write!(
                    svg,
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"
                );
            }),
            Mark::Bars => {
                let zero = y.at(&Value::from(0)).unwrap_or(0.0);
                let zero = top + (1.0 - zero) * height;
                let slot = x.slot(series.x.len()) * width * 0.8;
                let wide = (slot / bars as f64).max(0.5);
                let shift = bar as f64 * wide - slot / 2.0;
                points.flatten().for_each(|(x, y)| {
                    let (from, tall) = (y.min(zero), (y - zero).abs());
                    let _ = write!(
                        svg,
                        "<rect class=\"bar\" x=\"{:.1}\" y=\"{from:.1}\" width=\"{wide:.1}\" \
                         height=\"{tall:.1}\" fill=\"{colour}\"/>",
                        x + shift
                    );
                });
                bar += 1;
            }
            Mark::Slices => {}
        }
    }
    Ok(())
}

/// A line, with gaps where a value is missing.
fn lines(svg: &mut String, points: impl Iterator<Item = Option<(f64, f64)>>, colour: &str) {
    let points: Vec<Option<(f64, f64)>> = points.collect();
    for part in points
        .split(Option::is_none)
        .filter(|part| !part.is_empty())
    {
        let _ = write!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\""
        );
        for (x, y) in part.iter().flatten() {
            let _ = write!(svg, "{x:.1},{y:.1} ");
        }
        svg.push_str("\"/>");
    }
}

fn slices(svg: &mut String, pie: &Series) -> Result<(), Why> {
    let values: Vec<f64> = (pie.y.iter().take(NAMES))
        .map(|value| number(value).filter(|number| *number >= 0.0))
        .collect::<Option<_>>()
        .ok_or("a pie of other values than positive numbers")?;
    let sum: f64 = values.iter().sum();
    if !(sum > 0.0 && sum.is_finite()) {
        return Err("a pie without a size".to_owned());
    }
    let (x, y, radius) = (BOX.0 + BOX.2 / 2.0, BOX.1 + BOX.3 / 2.0, BOX.3 / 2.0);
    let mut names = Vec::new();
    let mut from = 0.0;
    for (index, value) in values.iter().enumerate() {
        // A whole circle would end where it begins.
        let part = (value / sum).min(0.9999);
        let edge = |turn: f64| {
            let angle = turn * std::f64::consts::TAU;
            (x + radius * angle.sin(), y - radius * angle.cos())
        };
        let ((x1, y1), (x2, y2)) = (edge(from), edge(from + part));
        let large = u8::from(part > 0.5);
        let colour = COLOURS[index % COLOURS.len()];
        let _ = write!(
            svg,
            "<path d=\"M{x:.1} {y:.1} L{x1:.2} {y1:.2} A{radius} {radius} 0 {large} 1 {x2:.2} {y2:.2} Z\" \
             fill=\"{colour}\" stroke=\"#ffffff\"/>"
        );
        from += part;
        let name = pie.x.get(index).map(super::word).unwrap_or_default();
        names.push(format!("{name} ({:.1} %)", part * 100.0));
    }
    legend(svg, &names.iter().map(String::as_str).collect::<Vec<_>>());
    Ok(())
}

fn legend(svg: &mut String, names: &[&str]) {
    for (index, name) in names.iter().take(LEGEND).enumerate() {
        let (x, y) = (BOX.0 + BOX.2 + 14.0, BOX.1 + 8.0 + index as f64 * 19.0);
        let colour = COLOURS[index % COLOURS.len()];
        let _ = write!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"11\" height=\"11\" fill=\"{colour}\"/>",
            y - 10.0
        );
        let mut short: String = name.chars().take(20).collect();
        if short.len() < name.len() {
            short.push('…');
        }
        words(svg, (x + 17.0, y), "start", &short);
    }
    if names.len() > LEGEND {
        let more = format!("and {} more", names.len() - LEGEND);
        let at = (BOX.0 + BOX.2 + 14.0, BOX.1 + 8.0 + LEGEND as f64 * 19.0);
        words(svg, at, "start", &more);
    }
}

fn line(svg: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64), colour: &str) {
    let _ = write!(
        svg,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\"/>"
    );
}

/// A word, escaped and shortened; what XML cannot hold, or what is not seen, is left out.
fn words(svg: &mut String, (x, y): (f64, f64), anchor: &'static str, text: &str) {
    let _ = write!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"#333333\">"
    );
    let is_fit = |c: &char| escape(*c).is_none() && !matches!(c, '\u{fffe}' | '\u{ffff}' | '\n');
    for (index, character) in text.chars().filter(is_fit).take(WORD + 1).enumerate() {
        match character {
            _ if index == WORD => svg.push('…'),
            '<' => svg.push_str("&lt;"),
            '>' => svg.push_str("&gt;"),
            '&' => svg.push_str("&amp;"),
            _ => svg.push(character),
        }
    }
    svg.push_str("</text>");
}
