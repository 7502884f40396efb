//! Lines out of what arrives in pieces.

/// Bytes that arrived and are not taken yet.
#[derive(Debug)]
pub(crate) struct Lines {
    bytes: Vec<u8>,
    /// Where the first line begins.
    start: usize,
    /// Up to where there is no end of it.
    searched: usize,
    /// The longest line.
    most: usize,
}

/// A line is longer than allowed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// Buffers larger than this are given back when they are empty.
const USUAL: usize = 256 << 10;

impl Lines {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            bytes: Vec::new(),
            start: 0,
            searched: 0,
            most,
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether there is a line, or what is too long for one.
    pub(crate) fn has_next(&mut self) -> bool {
        self.end().is_some() || self.bytes.len() - self.start > self.most
    }

    /// The next line, without its end.
    ///
    /// # Errors
    /// There is no end of it within the longest line. Nothing more can be read.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        let length = self.end().unwrap_or(self.bytes.len()) - self.start;
        if length > self.most {
            (self.bytes, self.start, self.searched) = (Vec::new(), 0, 0);
            return Err(TooLong);
        }
        let Some(end) = self.end() else {
            self.compact();
            return Ok(None);
        };
        let line = self.bytes[self.start..end].to_vec();
        self.start = end + 1;
        self.searched = self.start;
        Ok(Some(line))
    }

    fn end(&mut self) -> Option<usize> {
        let rest = self.bytes.get(self.searched..)?;
        match rest.iter().position(|byte| *byte == b'\n') {
            Some(at) => {
                self.searched += at;
                Some(self.searched)
            }
            None => {
                self.searched = self.bytes.len();
                None
            }
        }
    }

    fn compact(&mut self) {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.searched -= self.start;
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
        assert_eq!(lines.next(), Ok(Some(b"ab".to_vec())));
        assert_eq!(lines.next(), Ok(Some(Vec::new())));
        assert_eq!((lines.next(), lines.has_next()), (Ok(None), false));
        lines.push(b"\n");
        assert_eq!(lines.next(), Ok(Some(b"cd".to_vec())));
        assert_eq!(lines.next(), Ok(None));
    }

    #[test]
    fn a_line_that_is_too_long_is_not_kept() {
        let mut lines = Lines::new(10);
        lines.push(&[b'x'; 10]);
        assert_eq!(lines.next(), Ok(None));
        lines.push(b"x");
        assert!(lines.has_next());
        assert_eq!(lines.next(), Err(TooLong));
        lines.push(b"0123456789x\n");
        assert_eq!(lines.next(), Err(TooLong));
    }
}
