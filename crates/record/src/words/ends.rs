//! Long texts, without their middle.

use super::bytes;

/// The two ends of a text that has more than `most` bytes, and between them how
/// much is missing. The first is twice as long.
pub fn ends(text: &str, most: usize) -> Option<(&str, String, &str)> {
    if text.len() <= most {
        return None;
    }
    let is_boundary = |index: &usize| text.is_char_boundary(*index);
    let head = (0..=most / 3 * 2).rev().find(is_boundary)?;
    let tail = (text.len() - most / 3..=text.len()).find(is_boundary)?;
    let gap = bytes((tail - head) as u64);
    Some((&text[..head], gap, &text[tail..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_keep_both_ends() {
        let ends =
            |text, most| ends(text, most).map(|(head, gap, tail)| format!("{head}|{gap}|{tail}"));
        assert_eq!(ends("abcdef", 6), None);
        assert_eq!(ends("abcdefg", 6).unwrap(), "abcd|1 byte|fg");
        assert_eq!(ends("éééééé", 6).unwrap(), "éé|6 bytes|é");
        assert_eq!(ends("é", 1).unwrap(), "|2 bytes|");
    }
}
