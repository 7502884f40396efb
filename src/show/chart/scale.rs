//! Where values lie on an axis: numbers, days, or names.

use serde_json::Value;

use super::{NAMES, Why, word};

/// An axis.
#[derive(Debug)]
pub(super) enum Scale {
    /// From one number to another.
    Numbers(f64, f64),
    /// The same for days since 1970.
    Days(f64, f64),
    /// Names, one after the other.
    Names(Vec<String>),
}

/// Ticks, at most about.
const TICKS: f64 = 6.0;
/// Names that are written along an axis.
const LABELS: usize = 12;

impl Scale {
    /// The axis for these values; it begins at zero `from_zero`, and holds names if one
    /// value is a name.
    pub(super) fn of<'a>(
        values: impl Iterator<Item = &'a Value> + Clone,
        from_zero: bool,
    ) -> Result<Self, Why> {
        let known = || values.clone().filter(|value| !value.is_null());
        if known().next().is_none() {
            return Err("it has no values".to_owned());
        }
        let span = |read: fn(&Value) -> Option<f64>| {
            let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
            for value in known() {
                let value = read(value)?;
                (low, high) = (low.min(value), high.max(value));
            }
            Some((low, high))
        };
        if let Some((mut low, mut high)) = span(number) {
            if from_zero {
                (low, high) = (low.min(0.0), high.max(0.0));
            }
            let (low, high) = widened(low, high)?;
            return Ok(Self::Numbers(low, high));
        }
        if let Some((low, high)) = span(day) {
            let (low, high) = widened(low, high)?;
            return Ok(Self::Days(low, high));
        }
        let mut names: Vec<String> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for value in known() {
            let name = word(value);
            if seen.insert(name.clone()) {
                names.push(name);
            }
            if names.len() > NAMES {
                return Err(format!("an axis has more than {NAMES} names"));
            }
        }
        Ok(Self::Names(names))
    }

    /// Where a value lies, from 0 to 1.
    pub(super) fn at(&self, value: &Value) -> Option<f64> {
        let at = match self {
            Self::Numbers(low, high) => (number(value)? - low) / (high - low),
            Self::Days(low, high) => (day(value)? - low) / (high - low),
            Self::Names(names) => {
                let name = word(value);
                let index = names.iter().position(|known| *known == name)?;
                (index as f64 + 0.5) / names.len() as f64
            }
        };
        at.is_finite().then_some(at.clamp(0.0, 1.0))
    }

    /// Marks along the axis, and what is written there.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let between = |low: f64, high: f64, write: &dyn Fn(f64, f64) -> String| {
            let step = step(high - low);
            let first = (low / step).ceil();
            let ticks = (0..=(TICKS as u32) * 2).map(|index| (first + f64::from(index)) * step);
            ticks
                .filter(|value| value.is_finite() && *value <= high)
                .map(|value| ((value - low) / (high - low), write(value, step)))
                .collect()
        };
        match self {
            Self::Numbers(low, high) => between(*low, *high, &written),
            Self::Days(low, high) => between(*low, *high, &|day, step| date(day, step)),
            Self::Names(names) => {
                let every = names.len().div_ceil(LABELS).max(1);
                let names_ = names.iter().enumerate().step_by(every);
                let at = |index: usize| (index as f64 + 0.5) / names.len() as f64;
                names_
                    .map(|(index, name)| (at(index), name.clone()))
                    .collect()
            }
        }
    }

    /// The part of the axis that a bar takes, of which there are this many.
    pub(super) fn slot(&self, bars: usize) -> f64 {
        match self {
            Self::Names(names) => 1.0 / names.len().max(1) as f64,
            _ => 1.0 / bars.max(1) as f64,
        }
    }
}

/// A span that is not empty, with which one can reckon.
fn widened(low: f64, high: f64) -> Result<(f64, f64), Why> {
    let span = high - low;
    let more = match span > 0.0 {
        true => 0.0,
        false => (low.abs() * 0.1).max(0.5),
    };
    let (low, high) = (low - more, high + more);
    let is_sound = (high - low).is_finite() && high - low > 1e-300;
    is_sound
        .then_some((low, high))
        .ok_or_else(|| "its numbers are too far apart or too close".to_owned())
}

/// 1, 2 or 5 times a power of ten.
fn step(span: f64) -> f64 {
    let rough = span / TICKS;
    let power = 10f64.powf(rough.log10().floor());
    let times = [1.0, 2.0, 5.0, 10.0];
    let fit = times.into_iter().find(|times| times * power >= rough);
    fit.unwrap_or(10.0) * power
}

fn written(value: f64, step: f64) -> String {
    let value = if value.abs() < step * 1e-6 {
        0.0
    } else {
        value
    };
    let is_plain = value == 0.0 || (1e-4..1e7).contains(&value.abs());
    match is_plain {
        true => {
            let digits = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
            format!("{value:.digits$}")
        }
        false => format!("{value:.1e}"),
    }
}

pub(super) fn number(value: &Value) -> Option<f64> {
    value.as_f64().filter(|number| number.is_finite())
}

/// Days since 1970 of `2024-02-29`, with or without a time behind.
fn day(value: &Value) -> Option<f64> {
    let text = value.as_str()?;
    let (date, time) = text.split_at_checked(10)?;
    let mut parts = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    if !(0..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let mut seconds = 0.0;
    if !time.is_empty() {
        let time = time.strip_prefix(['T', ' '])?;
        for (part, unit) in time.splitn(3, ':').zip([3600.0, 60.0, 1.0]) {
            let end = part.find(|c: char| !c.is_ascii_digit() && c != '.');
            seconds += part[..end.unwrap_or(part.len())].parse::<f64>().ok()? * unit;
        }
    }
    // The count of days by Howard Hinnant's well-known formula: years begin in March.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    Some(days as f64 + seconds / 86_400.0)
}

/// The date of a day, with the time if ticks are less than a day apart.
fn date(at: f64, step: f64) -> String {
    let days = at.floor() as i64 + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    let minutes = ((at - at.floor()) * 1440.0).round() as u32;
    match step < 1.0 {
        true => format!(
            "{month:02}-{day:02} {:02}:{:02}",
            minutes / 60,
            minutes % 60
        ),
        false => format!("{year:04}-{month:02}-{day:02}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn dates_are_days() {
        for (text, days) in [
            ("1970-01-01", 0.0),
            ("2024-02-29", 19782.0),
            ("1969-12-31T12:00:00", -0.5),
            ("2000-03-01 06:00", 11017.25),
        ] {
            assert_eq!(day(&json!(text)), Some(days), "{text}");
            assert_eq!(date(days, 1.0), text[..10], "{text}");
        }
        for text in ["", "2024", "2024-13-01", "abc", "éééééé", "2024-01-01x"] {
            assert_eq!(day(&json!(text)), None, "{text}");
        }
    }

    #[test]
    fn ticks_are_round() {
        let labels = |values: &[Value]| -> Vec<String> {
            let scale = Scale::of(values.iter(), false).unwrap();
            scale.ticks().into_iter().map(|(_, label)| label).collect()
        };
        assert_eq!(
            labels(&[json!(0), json!(10)]),
            ["0", "2", "4", "6", "8", "10"]
        );
        assert_eq!(labels(&[json!(0.1), json!(0.34)]).first().unwrap(), "0.10");
        assert_eq!(labels(&[json!("b"), json!("a")]), ["b", "a"]);
        assert!(Scale::of([json!(1e308), json!(-1e308)].iter(), false).is_err());
    }
}
