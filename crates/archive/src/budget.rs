//! What a source may take of the host.

use std::cell::Cell;

use record::error::{Result, SetupError, Step};

/// Bytes of memory for what is kept about a source while it is unpacked and listed.
const MEMORY: u64 = 256 << 20;

/// The usual size of a file system's blocks, which content fills.
const BLOCK: u64 = 4096;

/// What an inode and a name take on the disk.
const INODE: u64 = 512;

/// What is kept in memory about an entry besides its name.
const KEPT: u64 = 160;

/// The hint for what needs more disk space.
pub(super) const MORE_DISK: &str = "raise --max-size, such as to 32G; content counts in blocks of \
    4096 bytes, and an image that must be decompressed to a file counts twice";

/// Disk space and memory that a source may still take. One budget is for all of its
/// archives, layers and copies: what is taken is not given back when a later layer
/// replaces it.
#[derive(Debug)]
pub struct Budget {
    step: Step,
    max_disk: u64,
    disk: Cell<u64>,
    memory: Cell<u64>,
}

impl Budget {
    /// A budget with this many bytes of disk space. `step` is the one that errors name.
    pub fn new(step: Step, max_disk: u64) -> Self {
        Self {
            step,
            max_disk,
            disk: Cell::new(max_disk),
            memory: Cell::new(MEMORY),
        }
    }

    /// The step that errors name.
    pub fn step(&self) -> Step {
        self.step
    }

    /// All bytes of disk space that it began with.
    pub(super) fn max_disk(&self) -> u64 {
        self.max_disk
    }

    /// Takes disk space, before it is written to.
    ///
    /// # Errors
    /// So much is not left.
    pub fn take_disk(&self, bytes: u64) -> Result<()> {
        take(&self.disk, bytes).ok_or_else(|| {
            let message = format!("it takes more than {} bytes of disk space", self.max_disk);
            SetupError::new(self.step, message).hint(MORE_DISK)
        })
    }

    /// Takes memory, before it is allocated.
    ///
    /// # Errors
    /// So much is not left.
    pub fn take_memory(&self, bytes: u64) -> Result<()> {
        take(&self.memory, bytes).ok_or_else(|| {
            SetupError::new(
                self.step,
                format!("the names and links in it take more than {MEMORY} bytes of memory"),
            )
            .hint("there is room for about a million files: leave out what no cell needs")
        })
    }

    /// Takes what an entry with this name and this much content needs.
    pub(super) fn take_entry(&self, name: &[u8], content: u64) -> Result<()> {
        self.take_memory(KEPT + name.len() as u64)?;
        let blocks = content.checked_next_multiple_of(BLOCK);
        self.take_disk(blocks.unwrap_or(u64::MAX).saturating_add(INODE))
    }

    /// Takes what a directory of this name needs.
    pub(super) fn take_directory(&self, name: &[u8]) -> Result<()> {
        self.take_entry(name, BLOCK)
    }
}

fn take(left: &Cell<u64>, bytes: u64) -> Option<()> {
    left.set(left.get().checked_sub(bytes)?);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn honest_trees_have_room_and_others_are_refused_for_their_names() {
        let files = |length: usize| {
            let budget = Budget::new(Step::Store, u64::MAX);
            let name = vec![b'n'; length];
            let refused = (0..).find_map(|n| budget.take_entry(&name, 0).err().map(|e| (n, e)));
            refused.unwrap()
        };
        let (most, error) = files(20);
        assert!(most > 1_000_000, "{most}");
        assert!(
            error.message.contains("268435456 bytes of memory"),
            "{error}"
        );
        assert!(error.hint.is_some());
        assert!(files(255).0 < 700_000);
        assert!(files(4095).0 < 70_000);
    }
}
