//! Bounds: as much of a thing as fits.

use std::borrow::Cow;
use std::io;

use serde::Serialize;

use crate::words;

/// Shorter texts are not cut: the note of what is missing would be as long.
const SHORT: usize = 48;

/// Which part of its usual room each part of a thing gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scale(u32);

impl Scale {
    const STEPS: u32 = 1024;
    pub(super) const WHOLE: Self = Self(Self::STEPS);
    pub(super) const NOTHING: Self = Self(0);

    /// The part of `most`.
    pub(super) fn of(self, most: usize) -> usize {
        let part = most as u128 * u128::from(self.0) / u128::from(Self::STEPS);
        usize::try_from(part).unwrap_or(usize::MAX)
    }
}

/// The largest thing that `make` makes and that takes at most `most`; the smallest one
/// when none does.
pub(super) fn fit<T>(most: usize, size: impl Fn(&T) -> usize, make: impl Fn(Scale) -> T) -> T {
    let whole = make(Scale::WHOLE);
    if size(&whole) <= most {
        return whole;
    }
    let mut fitting = make(Scale::NOTHING);
    let (mut fits, mut exceeds) = (0, Scale::STEPS);
    while exceeds - fits > 1 {
        let middle = fits.midpoint(exceeds);
        let thing = make(Scale(middle));
        match size(&thing) <= most {
            true => (fitting, fits) = (thing, middle),
            false => exceeds = middle,
        }
    }
    fitting
}

/// The text; without its middle if it has more bytes than `most`.
pub(super) fn cut(text: &str, most: usize) -> Cow<'_, str> {
    match words::ends(text, most.max(SHORT)) {
        Some(_) => match words::ends(text, most) {
            Some((head, gap, tail)) => format!("{head}[… {gap} left out …]{tail}").into(),
            None => text.into(),
        },
        None => text.into(),
    }
}

/// Bytes of a value as JSON.
pub(super) fn json_size(value: &impl Serialize) -> usize {
    let mut count = Count(0);
    // Counting does not fail, and a value that cannot be written is reported when it is.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

struct Count(usize);

impl io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_as_fits_is_kept() {
        let text = "a".repeat(1000);
        let kept = |most| {
            fit(
                most,
                |t: &String| t.len(),
                |s| text[..s.of(1000)].to_owned(),
            )
        };
        assert_eq!(kept(1000).len(), 1000);
        assert_eq!(kept(500).len(), 500);
        assert_eq!(kept(0).len(), 0);
        assert_eq!(Scale::WHOLE.of(usize::MAX), usize::MAX);
    }

    #[test]
    fn what_is_missing_is_said_and_short_texts_stay() {
        let long = "é".repeat(100);
        assert_eq!(cut(&long, 12), "éééé[… 188 bytes left out …]éé");
        assert_eq!(cut(&long, 200), long);
        assert_eq!(cut("short", 0), "short");
    }

    #[test]
    fn the_size_is_that_of_the_json() {
        assert_eq!(json_size(&["a\n", "é"]), r#"["a\n","é"]"#.len());
    }
}
