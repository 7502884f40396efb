//! Files of a context's workspace.

use record::bytes::RawText;
use spec::Unread;
use supervisor::FileOrder;
use wire::{
    Code, Failure, FileList, FileMove, FileName, FileRead, FileRemove, FileUnwatch, FileWatch,
    FileWrite,
};

use super::client::Caller;
use super::session::{Phase, Work};
use super::{ClientId, Hub};

/// The most bytes that one call reads.
const LONGEST_READ: u64 = 4 << 20;
/// The most watches of a context.
const MOST_WATCHES: usize = 64;
/// The most files of a context of which clients have sent only parts.
const MOST_UPLOADS: usize = 64;

impl Hub {
    fn file(&mut self, caller: &Caller, context: &str, what: FileOrder) -> Result<(), Failure> {
        self.assign(caller, context, |session| {
            let id = session.next_file();
            Work::File { id, what }
        })
    }

    /// `file.write`
    pub(super) fn write_file(
        &mut self,
        caller: &Caller,
        params: FileWrite<Unread<RawText>>,
    ) -> Result<(), Failure> {
        let is_part = self.note_part(caller, &params)?;
        let FileWrite {
            context,
            path,
            content,
            executable,
            append,
            more,
        } = params;
        let what = match is_part {
            true => FileOrder::WritePart {
                client: caller.client,
                path,
                content,
                executable,
                is_first: !append,
                is_last: !more,
            },
            false => FileOrder::Write {
                path,
                content,
                executable,
                append,
            },
        };
        self.file(caller, &context, what)
    }

    /// Whether this is a part of a file that nobody sees before it is complete.
    fn note_part(
        &mut self,
        caller: &Caller,
        params: &FileWrite<Unread<RawText>>,
    ) -> Result<bool, Failure> {
        let link = self.find(caller, &params.context)?.link;
        let Some(session) = self.sessions.get_mut(&link) else {
            return Ok(false);
        };
        let key = (caller.client, params.path.clone());
        let is_begun = session.uploads.contains(&key);
        match (params.append, params.more) {
            (true, true) if !is_begun => {
                let message = "append: this client has begun no file of this path";
                let hint = "more without append begins one";
                Err(Failure::new(Code::BadParams, message).hint(hint))
            }
            (false, true) if !is_begun && session.uploads.len() >= MOST_UPLOADS => {
                let message = format!("this context has {MOST_UPLOADS} unfinished files already");
                Err(Failure::new(Code::Failed, message).hint("complete one"))
            }
            (_, true) => {
                session.uploads.insert(key);
                Ok(true)
            }
            (true, false) => Ok(session.uploads.remove(&key)),
            (false, false) => Ok(false),
        }
    }

    /// `file.read`
    pub(super) fn read_file(&mut self, caller: &Caller, params: FileRead) -> Result<(), Failure> {
        let limit = params.limit.unwrap_or(LONGEST_READ);
        if limit > LONGEST_READ {
            let message = format!("limit: is {limit}, but wants at most {LONGEST_READ}");
            return Err(Failure::new(Code::BadParams, message).hint("read the rest with offset"));
        }
        let what = FileOrder::Read {
            path: params.path,
            offset: params.offset,
            limit,
        };
        self.file(caller, &params.context, what)
    }

    /// `file.list`
    pub(super) fn list_files(&mut self, caller: &Caller, params: FileList) -> Result<(), Failure> {
        let depth = match (params.recursive, params.depth) {
            (true, Some(_)) => {
                let message = "depth: cannot be combined with recursive";
                return Err(Failure::new(Code::BadParams, message));
            }
            (true, None) => usize::MAX,
            (false, depth) => depth.map_or(1, |depth| depth.get() as usize),
        };
        let what = FileOrder::List {
            path: params.path,
            depth,
        };
        self.file(caller, &params.context, what)
    }

    /// `file.stat`
    pub(super) fn stat_file(&mut self, caller: &Caller, params: FileName) -> Result<(), Failure> {
        let what = FileOrder::Stat { path: params.path };
        self.file(caller, &params.context, what)
    }

    /// `file.make_directory`
    pub(super) fn make_directory(
        &mut self,
        caller: &Caller,
        params: FileName,
    ) -> Result<(), Failure> {
        let what = FileOrder::MakeDirectory { path: params.path };
        self.file(caller, &params.context, what)
    }

    /// `file.move`
    pub(super) fn move_file(&mut self, caller: &Caller, params: FileMove) -> Result<(), Failure> {
        let what = FileOrder::Move {
            from: params.from,
            to: params.to,
        };
        self.file(caller, &params.context, what)
    }

    /// `file.remove`
    pub(super) fn remove_file(
        &mut self,
        caller: &Caller,
        params: FileRemove,
    ) -> Result<(), Failure> {
        let what = FileOrder::Remove { path: params.path };
        self.file(caller, &params.context, what)
    }

    /// `file.watch`: changes are events of this call.
    pub(super) fn watch_files(
        &mut self,
        caller: &Caller,
        params: FileWatch,
    ) -> Result<(), Failure> {
        let link = self.find(caller, &params.context)?.link;
        let watches = self
            .sessions
            .get(&link)
            .map_or(0, |session| session.watches.len());
        if watches >= MOST_WATCHES {
            let message = format!("this context has {MOST_WATCHES} watches already");
            return Err(Failure::new(Code::Failed, message).hint("end one with file.unwatch"));
        }
        self.file(
            caller,
            &params.context,
            FileOrder::Watch { path: params.path },
        )
    }

    /// `file.unwatch`
    pub(super) fn unwatch_files(
        &mut self,
        caller: &Caller,
        params: &FileUnwatch,
    ) -> Result<(), Failure> {
        let link = self.find(caller, &params.context)?.link;
        let watches = self
            .sessions
            .get_mut(&link)
            .map(|session| &mut session.watches);
        let removed = watches.and_then(|watches| {
            let own = watches.get(&params.watch)?.0 == caller.client;
            own.then(|| watches.remove(&params.watch))
        });
        if removed.is_none() {
            let message = format!("this client has no watch {} in this context", params.watch);
            return Err(Failure::new(Code::NotFound, message));
        }
        let watch = params.watch;
        self.file(caller, &params.context, FileOrder::Unwatch { watch })
    }

    /// Drops the files of which a client that has gone has sent only parts.
    pub(super) fn drop_uploads_of(&mut self, client: ClientId) {
        let links: Vec<_> = self.sessions.keys().copied().collect();
        for link in links {
            let Some(session) = self.sessions.get_mut(&link) else {
                continue;
            };
            let before = session.uploads.len();
            session.uploads.retain(|(sender, _)| *sender != client);
            // A suspended session's are gone.
            if session.uploads.len() < before && session.phase == Phase::Active {
                let id = session.next_file();
                let what = FileOrder::DropParts { client };
                session.push(None, Work::File { id, what });
                self.pump(link);
            }
        }
    }

    /// Ends the watches of a client that has gone.
    pub(super) fn end_watches_of(&mut self, client: ClientId) {
        let links: Vec<_> = self.sessions.keys().copied().collect();
        for link in links {
            let Some(session) = self.sessions.get_mut(&link) else {
                continue;
            };
            let is_own = |(_, (watcher, _)): &(&u64, &(ClientId, _))| *watcher == client;
            let own: Vec<u64> = session
                .watches
                .iter()
                .filter(is_own)
                .map(|(id, _)| *id)
                .collect();
            for watch in own {
                session.watches.remove(&watch);
                let id = session.next_file();
                let what = FileOrder::Unwatch { watch };
                session.push(None, Work::File { id, what });
            }
            self.pump(link);
        }
    }
}
