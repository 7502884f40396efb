//! Lines out of what arrives in pieces.

use std::cell::Cell;

use memchr::memchr;

/// Bytes that arrived and are not taken yet.
#[derive(Debug)]
pub struct Lines {
    bytes: Vec<u8>,
    /// Where the first line begins.
    start: usize,
    /// Up to where there is no end of it.
    searched: Cell<usize>,
    /// The longest line.
    most: usize,
    /// Whether what comes up to the end of the line is dropped.
    is_skipping: bool,
}

/// A line is longer than allowed.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLong;

/// Buffers larger than this are given back when they are empty.
const USUAL: usize = 256 << 10;

impl Lines {
    /// No bytes yet; lines have at most `most`.
    pub fn new(most: usize) -> Self {
        Self {
            bytes: Vec::new(),
            start: 0,
            searched: Cell::new(0),
            most,
            is_skipping: false,
        }
    }

    /// Takes bytes that arrived.
    pub fn push(&mut self, mut bytes: &[u8]) {
        if self.is_skipping {
            let Some(end) = memchr(b'\n', bytes) else {
                return;
            };
            self.is_skipping = false;
            bytes = bytes.get(end + 1..).unwrap_or_default();
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The bytes that wait.
    #[expect(clippy::len_without_is_empty, reason = "no caller needs it")]
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Drops the first line, also what of it has not arrived; returns what has.
    pub fn skip(&mut self) -> Vec<u8> {
        self.is_skipping = self.end().is_none();
        let end = self.end().unwrap_or(self.bytes.len());
        let line = self.bytes.get(self.start..end).unwrap_or_default().to_vec();
        self.start = (end + 1).min(self.bytes.len());
        self.searched.set(self.start);
        self.compact();
        line
    }

    /// Whether there is a line, or what is too long for one.
    pub fn has_next(&self) -> bool {
        self.end().is_some() || self.bytes.len() - self.start > self.most
    }

    /// The next line, without its end.
    ///
    /// # Errors
    /// There is no end of it within the longest line. Nothing more can be read.
    pub fn next_line(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        let length = self.end().unwrap_or(self.bytes.len()) - self.start;
        if length > self.most {
            (self.bytes, self.start) = (Vec::new(), 0);
            self.searched.set(0);
            return Err(TooLong);
        }
        let Some(end) = self.end() else {
            self.compact();
            return Ok(None);
        };
        if self.start == 0 && end + 1 == self.bytes.len() {
            // It can be long, and nothing follows it.
            let mut line = std::mem::take(&mut self.bytes);
            line.truncate(end);
            self.searched.set(0);
            return Ok(Some(line));
        }
        let line = self.bytes[self.start..end].to_vec();
        self.start = end + 1;
        self.searched.set(self.start);
        Ok(Some(line))
    }

    fn end(&self) -> Option<usize> {
        let searched = self.searched.get();
        let rest = self.bytes.get(searched..)?;
        let end = memchr(b'\n', rest);
        self.searched
            .set(end.map_or(self.bytes.len(), |end| searched + end));
        end.map(|end| searched + end)
    }

    fn compact(&mut self) {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.searched.set(self.searched.get() - self.start);
            self.start = 0;
        }
        if self.bytes.is_empty() && self.bytes.capacity() > USUAL {
            self.bytes = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_arrive_in_pieces() {
        let mut lines = Lines::new(10);
        for byte in b"ab\n\ncd" {
            lines.push(&[*byte]);
        }
        assert!(lines.has_next());
        assert_eq!(lines.next_line(), Ok(Some(b"ab".to_vec())));
        assert_eq!(lines.next_line(), Ok(Some(Vec::new())));
        assert_eq!((lines.next_line(), lines.has_next()), (Ok(None), false));
        lines.push(b"\n");
        assert_eq!(lines.next_line(), Ok(Some(b"cd".to_vec())));
        assert_eq!(lines.next_line(), Ok(None));
    }

    #[test]
    fn a_line_is_skipped_to_its_end() {
        let mut lines = Lines::new(10);
        lines.push(b"abc");
        assert_eq!((lines.skip(), lines.len()), (b"abc".to_vec(), 0));
        lines.push(b"def");
        assert_eq!((lines.next_line(), lines.len()), (Ok(None), 0));
        lines.push(b"gh\nij\nk");
        assert_eq!(lines.next_line(), Ok(Some(b"ij".to_vec())));
        lines.push(b"l\nm");
        assert_eq!((lines.skip(), lines.len()), (b"kl".to_vec(), 1));
        lines.push(b"\n");
        assert_eq!(lines.next_line(), Ok(Some(b"m".to_vec())));
    }

    #[test]
    fn a_line_that_is_too_long_is_not_kept() {
        let mut lines = Lines::new(10);
        lines.push(&[b'x'; 10]);
        assert_eq!(lines.next_line(), Ok(None));
        lines.push(b"x");
        assert!(lines.has_next());
        assert_eq!(lines.next_line(), Err(TooLong));
        lines.push(b"0123456789x\n");
        assert_eq!(lines.next_line(), Err(TooLong));
    }
}
