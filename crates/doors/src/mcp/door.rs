//! What a client of MCP asks for, as calls of the server, and the answers on their way back.

mod answers;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use record::json::Object;
use record::object;
use record::quantity::Bound;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use wire::{CallId, Cancel, Failure, FileRead, Method, line_of, method};

use super::command::Command;
use super::instructions::About;
use super::memory::Memory;
use super::output::ToolResult;
use super::pending::{PROGRESS_EVERY, Pending, Progress, What};
use super::resource::{self, contents, no_resource};
use super::revision::{Caching, Meta, Reply, Revision, STATELESS, agreed};
use super::rpc::{self, Fault, INVALID_PARAMS, METHOD_NOT_FOUND, Message};
use super::tools::{self, Finish, Terms};

/// Bytes of a file that `resources/read` returns.
const LARGEST_RESOURCE: u64 = 4 << 20;
/// Requests of one client that wait for their answers.
const MOST_PENDING: usize = 1024;
/// The time that cancelled code in a context gets to end by itself.
const GRACE: Duration = Duration::from_secs(2);

/// A line to write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// To the client.
    Client(String),
    /// To the server.
    Server(String),
}

/// A client's side of the server.
#[derive(Debug)]
pub(crate) struct Door {
    about: Arc<About>,
    /// Names the server in answers.
    server: Object<'static>,
    /// The number of the last call.
    last: i64,
    pending: BTreeMap<i64, Pending>,
    memory: Memory,
    /// Whether contexts outlive this door.
    keeps_contexts: bool,
    lines: VecDeque<Line>,
}

impl Door {
    /// A door for one client.
    pub(crate) fn new(about: About) -> Self {
        Self::of(Arc::new(about), Memory::default(), false)
    }

    /// One of many doors of a client: each serves some of its requests. Contexts stay until
    /// they are closed or idle.
    pub(crate) fn of_many(about: Arc<About>, memory: Memory) -> Self {
        Self::of(about, memory, true)
    }

    fn of(about: Arc<About>, memory: Memory, keeps_contexts: bool) -> Self {
        Self {
            about,
            server: object! {
                "name": "cellblock",
                "title": "cellblock",
                "version": env!("CARGO_PKG_VERSION"),
            },
            last: 0,
            pending: BTreeMap::new(),
            memory,
            keeps_contexts,
            lines: VecDeque::new(),
        }
    }

    /// The next line to write.
    pub(crate) fn next_line(&mut self) -> Option<Line> {
        self.lines.pop_front()
    }

    /// Whether all requests have been answered, once there is no line to write.
    pub(crate) fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// Answers all pending requests with an error: the server has ended.
    pub(crate) fn fail(&mut self, failure: &Failure) {
        for pending in std::mem::take(&mut self.pending).into_values() {
            self.settle(&pending, pending.failed(failure));
        }
    }

    /// When [`Door::tick`] has something to do.
    pub(crate) fn next_tick(&self) -> Option<Instant> {
        let reports = self
            .pending
            .values()
            .filter_map(|one| one.progress.as_ref());
        reports.map(|progress| progress.last + PROGRESS_EVERY).min()
    }

    /// Reports progress where it is time.
    pub(crate) fn tick(&mut self, now: Instant) {
        for pending in self.pending.values_mut().filter(|one| !one.is_cancelled) {
            if let Some(progress) = &mut pending.progress
                && progress.last + PROGRESS_EVERY <= now
            {
                let line = progress.report(now, "running");
                self.lines.push_back(Line::Client(line));
            }
        }
    }

    /// Takes a line of the client.
    pub(crate) fn take_from_client(&mut self, line: &[u8], now: Instant) {
        let answer = match rpc::parse(line) {
            Ok(Message::Request { id, method, params }) => self.request(id, &method, params, now),
            Ok(Message::Notification { method, params }) => {
                if method == "notifications/cancelled" {
                    self.cancel(params);
                }
                None
            }
            Ok(Message::Answer) => None,
            Err((id, fault)) => Some(rpc::fault(id.as_ref(), &fault)),
        };
        self.lines.extend(answer.map(Line::Client));
    }

    /// The line that answers a request.
    fn answer(
        &self,
        id: &CallId,
        revision: Revision,
        caching: Caching,
        answer: Result<Reply, Fault>,
    ) -> String {
        match answer {
            Ok(reply) => {
                // The result of a tool is not for keeping.
                let caching = match reply.fields.get("isError") {
                    Some(_) => Caching::Never,
                    None => caching,
                };
                rpc::result(id, &revision.dress(reply, caching, &self.server))
            }
            Err(fault) => rpc::fault(Some(id), &fault),
        }
    }

    /// The answer to a request, unless it needs the server.
    fn request(&mut self, id: CallId, method: &str, params: &str, now: Instant) -> Option<String> {
        let known = Meta::of(params).and_then(|meta| Ok((Revision::of(&meta)?, meta)));
        let (revision, meta) = match known {
            Ok(known) => known,
            Err(fault) => return Some(rpc::fault(Some(&id), &fault)),
        };
        let is_taken = self.pending.values().any(|one| one.request == id);
        let answer = match (method, revision) {
            _ if is_taken => Err(Fault::new(
                INVALID_PARAMS,
                "id: a request with this id goes on",
            )),
            ("initialize", Revision::WithHandshake) => {
                self.greeting(params).map(|reply| (Caching::Never, reply))
            }
            ("ping", Revision::WithHandshake) => Ok((Caching::Never, Reply::default())),
            ("server/discover", _) => Ok((Caching::Lasting, self.discovered())),
            ("tools/list", _) => {
                let tools = object! {"tools": tools::declared(&self.about)};
                Ok((Caching::Lasting, tools.into()))
            }
            // It may not change with other requests, and what runs leave does.
            ("resources/list", _) => {
                let none: [(); 0] = [];
                Ok((Caching::Lasting, object! {"resources": none}.into()))
            }
            ("resources/templates/list", _) => {
                let templates = object! {"resourceTemplates": resource::templates()};
                Ok((Caching::Lasting, templates.into()))
            }
            ("tools/call", _) => match self.call_tool(&id, revision, params, meta.token, now) {
                Ok(None) => return None,
                Ok(Some(reply)) => Ok((Caching::Never, reply)),
                Err(fault) => Err(fault),
            },
            ("resources/read", _) => match self.read_resource(&id, revision, params) {
                Ok(None) => return None,
                Ok(Some(reply)) => Ok((Caching::Private, reply)),
                Err(fault) => Err(fault),
            },
            _ => {
                let shown: String = method.chars().take(64).collect();
                Err(Fault::new(
                    METHOD_NOT_FOUND,
                    format!("{shown:?} is not a method here"),
                ))
            }
        };
        let (caching, answer) = match answer {
            Ok((caching, result)) => (caching, Ok(result)),
            Err(fault) => (Caching::Never, Err(fault)),
        };
        // Only `server/discover` is asked before a client knows the revision.
        let revision = match method {
            "server/discover" => Revision::Stateless,
            _ => revision,
        };
        Some(self.answer(&id, revision, caching, answer))
    }

    fn greeting(&self, params: &str) -> Result<Reply, Fault> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Greeting {
            #[serde(default)]
            protocol_version: Option<String>,
        }
        let Greeting { protocol_version } = rpc::read(params)?;
        let fields = object! {
            "protocolVersion": agreed(protocol_version.as_deref()),
            "capabilities": capabilities(),
            "serverInfo": self.server,
            "instructions": self.about.instructions(),
        };
        Ok(fields.into())
    }

    fn discovered(&self) -> Reply {
        let fields = object! {
            "supportedVersions": [STATELESS],
            "capabilities": capabilities(),
            "instructions": self.about.instructions(),
        };
        fields.into()
    }

    /// The answer of a tool, unless it needs the server.
    fn call_tool(
        &mut self,
        id: &CallId,
        revision: Revision,
        params: &str,
        token: Option<&RawValue>,
        now: Instant,
    ) -> Result<Option<Reply>, Fault> {
        #[derive(Deserialize)]
        struct ToolCall<'a> {
            #[serde(default)]
            name: String,
            #[serde(borrow, default)]
            arguments: Option<&'a RawValue>,
        }
        let ToolCall { name, arguments } = rpc::read(params)?;
        let Some(tool) = tools::find(&name) else {
            let shown: String = name.chars().take(64).collect();
            return Err(Fault::new(
                INVALID_PARAMS,
                format!("{shown:?} is not a tool"),
            ));
        };
        let arguments = arguments.map_or("{}", RawValue::get);
        if !arguments.starts_with('{') {
            return Err(Fault::new(INVALID_PARAMS, "arguments: wants an object"));
        }
        let is_one = |token: &&RawValue| {
            let first = token.get().bytes().next();
            first.is_some_and(|first| first == b'"' || first == b'-' || first.is_ascii_digit())
        };
        let token = token.filter(is_one);
        let terms = Terms {
            wall: self.about.wall,
            languages: self.about.languages,
            events: token.is_some(),
            keep: self.keeps_contexts,
        };
        let begun = match tool.begin(arguments, &terms) {
            Ok(begun) if self.pending.len() < MOST_PENDING => begun,
            Ok(_) => {
                let busy = ToolResult::error("busy: too many calls go on");
                return Ok(Some(busy.into()));
            }
            Err(why) => return Ok(Some(ToolResult::error(&why).into())),
        };
        let progress = token.map(|token| Progress {
            token: token.to_owned(),
            began: now,
            last: now,
            value: 0.0,
        });
        let what = match begun.finish {
            Finish::Result(finish) => What::Tool(finish),
            Finish::Process { context } => What::Command(Command::new(context, now)),
        };
        let pending = Pending {
            request: id.clone(),
            revision,
            what,
            is_cancelled: false,
            progress,
        };
        self.send(begun.method, &begun.params, Some(pending));
        Ok(None)
    }

    fn read_resource(
        &mut self,
        id: &CallId,
        revision: Revision,
        params: &str,
    ) -> Result<Option<Reply>, Fault> {
        #[derive(Deserialize)]
        struct Named {
            #[serde(default)]
            uri: String,
        }
        let Named { uri } = rpc::read(params)?;
        if let Some(item) = self.memory.lock().find(&uri) {
            return Ok(Some(contents(&uri, &item.media_type, &item.bytes).into()));
        }
        let Some((context, path)) = resource::context_file(&uri) else {
            return Err(no_resource(revision, &uri, "there is no such resource"));
        };
        let params = FileRead {
            limit: Some(LARGEST_RESOURCE),
            ..FileRead::new(context, path)
        };
        let pending = Pending {
            request: id.clone(),
            revision,
            what: What::Resource { uri },
            is_cancelled: false,
            progress: None,
        };
        self.call::<method::FileRead>(&params, Some(pending));
        Ok(None)
    }

    /// Makes a call of the server.
    fn call<M: Method>(&mut self, params: &M::Params, pending: Option<Pending>) {
        self.send(M::NAME, params, pending);
    }

    fn send(&mut self, method: &str, params: &impl Serialize, pending: Option<Pending>) {
        self.last += 1;
        // What this program writes has a form in JSON.
        let line = line_of(self.last, method, params).unwrap_or_default();
        self.lines.push_back(Line::Server(line));
        self.pending
            .extend(pending.map(|pending| (self.last, pending)));
    }

    /// Ends what a client does not want any more. A context keeps its variables where its
    /// interpreter can be interrupted. A command that is about to begin ends then.
    fn cancel(&mut self, params: &str) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Cancelled<'a> {
            #[serde(borrow)]
            request_id: &'a RawValue,
        }
        let cancelled = rpc::read(params).ok();
        let request = cancelled.and_then(|Cancelled { request_id }| rpc::read_id(request_id));
        let found = self
            .pending
            .iter()
            .find(|(_, one)| Some(&one.request) == request.as_ref());
        let Some(call) = found.map(|(call, _)| *call) else {
            return;
        };
        let kill = match self.pending.get(&call).map(|pending| &pending.what) {
            Some(What::Command(command)) => command.kill(),
            _ => None,
        };
        // It names the call, which may be over meanwhile, and not the context, which may execute
        // the client's next one.
        match kill {
            Some(kill) => self.call::<method::ProcessSignal>(&kill, None),
            None => {
                let cancel = Cancel {
                    call: CallId::Number(call),
                    grace: Some(Bound(Some(GRACE))),
                };
                self.call::<method::Cancel>(&cancel, None);
            }
        }
        if let Some(pending) = self.pending.get_mut(&call) {
            pending.is_cancelled = true;
        }
    }
}

/// What the server can do.
fn capabilities() -> Object<'static> {
    object! {"tools": object! {}, "resources": object! {}}
}

#[cfg(test)]
mod tests;
