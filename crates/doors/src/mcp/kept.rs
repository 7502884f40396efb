//! Files and pictures of cells that are gone, which answers have named by their URI.

use std::collections::VecDeque;

/// Bytes of all of them; the oldest go first.
const ROOM: usize = 64 << 20;
/// The most entries.
const MOST: usize = 4096;

/// One of them.
#[derive(Debug)]
pub(super) struct Item {
    uri: String,
    pub(super) media_type: String,
    pub(super) bytes: Vec<u8>,
}

/// All of them, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Kept {
    items: VecDeque<Item>,
    used: usize,
}

impl Kept {
    /// Keeps `bytes` under `uri`, unless they are larger than all the room.
    pub(super) fn keep(&mut self, uri: &str, media_type: &str, bytes: Vec<u8>) -> bool {
        if bytes.len() > ROOM {
            return false;
        }
        self.used += bytes.len();
        self.items.push_back(Item {
            uri: uri.to_owned(),
            media_type: media_type.to_owned(),
            bytes,
        });
        while self.used > ROOM || self.items.len() > MOST {
            let Some(oldest) = self.items.pop_front() else {
                break;
            };
            self.used -= oldest.bytes.len();
        }
        true
    }

    /// What `uri` names.
    pub(super) fn find(&self, uri: &str) -> Option<&Item> {
        self.items.iter().rfind(|item| item.uri == uri)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_first() {
        let mut kept = Kept::default();
        assert!(kept.keep("a", "text/plain", vec![0; ROOM - 1]));
        assert!(kept.keep("b", "text/plain", vec![0]));
        assert!(kept.find("a").is_some());
        assert!(kept.keep("c", "text/plain", vec![0]));
        assert!(kept.find("a").is_none() && kept.find("b").is_some());
        assert!(!kept.keep("d", "text/plain", vec![0; ROOM + 1]));
        assert!(kept.find("c").is_some() && kept.find("d").is_none());
    }
}
