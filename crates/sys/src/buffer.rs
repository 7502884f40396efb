//! A buffer for reads.

use nix::errno::Errno;

const SMALL: usize = 4 << 10;
const LARGE: usize = 64 << 10;

/// A buffer for one read after the other: a small one on the stack, and a large one once a read has
/// filled it. Most reads bring less than a page, while a large array is cleared each time and keeps
/// its pages.
#[derive(Debug)]
pub struct ReadBuffer {
    small: [u8; SMALL],
    /// Empty until it is needed.
    large: Vec<u8>,
    is_full: bool,
}

impl Default for ReadBuffer {
    fn default() -> Self {
        Self {
            small: [0; SMALL],
            large: Vec::new(),
            is_full: false,
        }
    }
}

impl ReadBuffer {
    /// Passes the buffer to `read`, which returns how many bytes it has put there; returns these
    /// bytes.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn read(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    ) -> Result<&[u8], Errno> {
        if self.is_full && self.large.is_empty() {
            self.large = vec![0; LARGE];
        }
        let room = match self.large.as_mut_slice() {
            [] => self.small.as_mut_slice(),
            large => large,
        };
        let count = read(room)?;
        self.is_full = count == room.len();
        Ok(&room[..count])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_grows_when_a_read_fills_it() {
        let mut buffer = ReadBuffer::default();
        let source: Vec<u8> = (0..200_000_u32).map(|n| n as u8).collect();
        let (mut taken, mut sizes) = (Vec::new(), Vec::new());
        while taken.len() < source.len() {
            let rest = &source[taken.len()..];
            let read = buffer.read(|room| {
                let count = rest.len().min(room.len());
                room[..count].copy_from_slice(&rest[..count]);
                Ok(count)
            });
            taken.extend_from_slice(read.unwrap());
            sizes.push(taken.len());
        }
        assert_eq!(taken, source);
        assert_eq!(sizes[..2], [SMALL, SMALL + LARGE]);
        assert_eq!(buffer.read(|_| Err(Errno::EAGAIN)), Err(Errno::EAGAIN));
        assert_eq!(buffer.read(|_| Ok(0)), Ok(&[][..]));
    }
}
