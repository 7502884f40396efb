//! Series of times as a picture of text.

use std::fmt::Write as _;

use crate::series::Launch;

const WIDTH: usize = 60;

/// One line each: `-` from the 10th to the 90th percentile, `|` the median, on
/// a logarithmic axis.
pub(crate) fn chart(launches: &[Launch]) -> String {
    let lowest = launches.iter().map(|l| l.time.p10).fold(f64::MAX, f64::min);
    let highest = launches.iter().map(|l| l.time.p90).fold(0.0, f64::max);
    if lowest <= 0.0 || highest <= lowest {
        return String::new();
    }
    let column = |value: f64| {
        let share = (value / lowest).ln() / (highest / lowest).ln();
        ((share * (WIDTH - 1) as f64).round() as usize).min(WIDTH - 1)
    };
    let mut text = String::new();
    for launch in launches {
        let time = &launch.time;
        let (from, middle, to) = (column(time.p10), column(time.median), column(time.p90));
        let bar: String = (0..WIDTH)
            .map(|at| match at {
                _ if at == middle => '|',
                _ if (from..=to).contains(&at) => '-',
                _ => ' ',
            })
            .collect();
        let _ = writeln!(text, "  {:<11} {}", launch.name, bar.trim_end());
    }
    let (left, right) = (format!("{lowest:.0} µs"), format!("{highest:.0} µs"));
    let gap = WIDTH.saturating_sub(left.chars().count());
    let _ = writeln!(text, "  {:<11} {left}{right:>gap$}", "");
    text
}
