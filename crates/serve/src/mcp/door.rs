//! What a client of MCP asks for, as calls of the server, and the answers on their way back.

mod answers;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Map, Value, json};

use super::command::Command;
use super::instructions::About;
use super::memory::Memory;
use super::output::ToolResult;
use super::pending::{PROGRESS_EVERY, Pending, Progress, What};
use super::resource::{self, contents, no_resource};
use super::revision::{Caching, Revision, STATELESS, agreed};
use super::rpc::{self, Fault, INVALID_PARAMS, METHOD_NOT_FOUND, Message};
use super::tools::{self, Finish};
use crate::protocol::{CallId, Failure};

/// Bytes of a file that `resources/read` returns.
const LARGEST_RESOURCE: u64 = 4 << 20;
/// Requests of one client that wait for their answers.
const MOST_PENDING: usize = 1024;
/// Seconds that cancelled code in a context gets to end by itself.
const GRACE_SECONDS: u64 = 2;

/// A line to write.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// To the client.
    Client(String),
    /// To the server.
    Server(String),
}

/// A client's side of the server.
#[derive(Debug)]
pub struct Door {
    about: Arc<About>,
    /// Names the server in answers.
    server: Value,
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
    pub fn new(about: About) -> Self {
        Self::of(Arc::new(about), Memory::default(), false)
    }

    /// One of many doors of a client: each serves some of its requests. Contexts stay until
    /// they are closed or idle.
    pub fn of_many(about: Arc<About>, memory: Memory) -> Self {
        Self::of(about, memory, true)
    }

    fn of(about: Arc<About>, memory: Memory, keeps_contexts: bool) -> Self {
        Self {
            about,
            server: json!({
                "name": "cellblock",
                "title": "cellblock",
                "version": env!("CARGO_PKG_VERSION"),
            }),
            last: 0,
            pending: BTreeMap::new(),
            memory,
            keeps_contexts,
            lines: VecDeque::new(),
        }
    }

    /// The next line to write.
    pub fn next_line(&mut self) -> Option<Line> {
        self.lines.pop_front()
    }

    /// Whether all requests have been answered, once there is no line to write.
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// Answers all pending requests with an error: the server has ended.
    pub fn fail(&mut self, failure: &Failure) {
        for pending in std::mem::take(&mut self.pending).into_values() {
            self.settle(&pending, pending.failed(failure));
        }
    }

    /// When [`Door::tick`] has something to do.
    pub fn next_tick(&self) -> Option<Instant> {
        let reports = self
            .pending
            .values()
            .filter_map(|one| one.progress.as_ref());
        reports.map(|progress| progress.last + PROGRESS_EVERY).min()
    }

    /// Reports progress where it is time.
    pub fn tick(&mut self, now: Instant) {
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
    pub fn take_from_client(&mut self, line: &[u8], now: Instant) {
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
        answer: Result<Value, Fault>,
    ) -> String {
        match answer {
            Ok(result) => {
                // The result of a tool is not for keeping.
                let caching = match result.get("isError") {
                    Some(_) => Caching::Never,
                    None => caching,
                };
                rpc::result(id, &revision.dress(result, caching, &self.server))
            }
            Err(fault) => rpc::fault(Some(id), &fault),
        }
    }

    /// The answer to a request, unless it needs the server.
    fn request(
        &mut self,
        id: CallId,
        method: &str,
        params: Map<String, Value>,
        now: Instant,
    ) -> Option<String> {
        let revision = match Revision::of(&params) {
            Ok(revision) => revision,
            Err(fault) => return Some(rpc::fault(Some(&id), &fault)),
        };
        let is_taken = self.pending.values().any(|one| one.request == id);
        let answer = match (method, revision) {
            _ if is_taken => Err(Fault::new(
                INVALID_PARAMS,
                "id: a request with this id goes on",
            )),
            ("initialize", Revision::WithHandshake) => Ok((Caching::Never, self.greeting(&params))),
            ("ping", Revision::WithHandshake) => Ok((Caching::Never, json!({}))),
            ("server/discover", _) => Ok((Caching::Lasting, self.discovered())),
            ("tools/list", _) => Ok((
                Caching::Lasting,
                json!({"tools": tools::declared(&self.about)}),
            )),
            // It may not change with other requests, and what runs leave does.
            ("resources/list", _) => Ok((Caching::Lasting, json!({"resources": []}))),
            ("resources/templates/list", _) => {
                let templates = resource::templates();
                Ok((Caching::Lasting, json!({"resourceTemplates": templates})))
            }
            ("tools/call", _) => match self.call_tool(&id, revision, params, now) {
                Ok(None) => return None,
                Ok(Some(result)) => Ok((Caching::Never, result)),
                Err(fault) => Err(fault),
            },
            ("resources/read", _) => match self.read_resource(&id, revision, &params) {
                Ok(None) => return None,
                Ok(Some(result)) => Ok((Caching::Private, result)),
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

    fn greeting(&self, params: &Map<String, Value>) -> Value {
        json!({
            "protocolVersion": agreed(params.get("protocolVersion").and_then(Value::as_str)),
            "capabilities": {"tools": {}, "resources": {}},
            "serverInfo": self.server,
            "instructions": self.about.instructions(),
        })
    }

    fn discovered(&self) -> Value {
        json!({
            "supportedVersions": [STATELESS],
            "capabilities": {"tools": {}, "resources": {}},
            "instructions": self.about.instructions(),
        })
    }

    /// The answer of a tool, unless it needs the server.
    fn call_tool(
        &mut self,
        id: &CallId,
        revision: Revision,
        mut params: Map<String, Value>,
        now: Instant,
    ) -> Result<Option<Value>, Fault> {
        let name = params
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let Some(tool) = tools::find(name) else {
            let shown: String = name.chars().take(64).collect();
            return Err(Fault::new(
                INVALID_PARAMS,
                format!("{shown:?} is not a tool"),
            ));
        };
        let arguments = match params.remove("arguments") {
            None => Map::new(),
            Some(Value::Object(arguments)) => arguments,
            Some(_) => return Err(Fault::new(INVALID_PARAMS, "arguments: wants an object")),
        };
        let begun = match tool.begin(arguments, self.about.wall) {
            Ok(begun) if self.pending.len() < MOST_PENDING => begun,
            Ok(_) => {
                return Ok(Some(
                    ToolResult::error("busy: too many calls go on").into_value(),
                ));
            }
            Err(why) => return Ok(Some(ToolResult::error(&why).into_value())),
        };
        let token = params
            .get("_meta")
            .and_then(|meta| meta.get("progressToken"));
        let progress = token
            .cloned()
            .filter(|token| token.is_string() || token.is_number());
        let progress = progress.map(|token| Progress {
            token,
            began: now,
            last: now,
            value: 0.0,
        });
        let mut call = begun.params;
        if progress.is_some() && matches!(begun.method, "run" | "context.run") {
            call["events"] = true.into();
        }
        if self.keeps_contexts && begun.method == "context.create" {
            call["keep"] = true.into();
        }
        let what = match begun.finish {
            Finish::Result(finish) => What::Tool(finish),
            Finish::Process => {
                let context = call["context"].as_str().unwrap_or_default();
                What::Command(Command::new(context, now))
            }
        };
        let pending = Pending {
            request: id.clone(),
            revision,
            what,
            is_cancelled: false,
            progress,
        };
        self.call(begun.method, &call, Some(pending));
        Ok(None)
    }

    fn read_resource(
        &mut self,
        id: &CallId,
        revision: Revision,
        params: &Map<String, Value>,
    ) -> Result<Option<Value>, Fault> {
        let uri = params
            .get("uri")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if let Some(item) = self.memory.lock().find(uri) {
            return Ok(Some(contents(uri, &item.media_type, &item.bytes)));
        }
        let Some((context, path)) = resource::context_file(uri) else {
            return Err(no_resource(revision, uri, "there is no such resource"));
        };
        let call = json!({"context": context, "path": path, "limit": LARGEST_RESOURCE});
        let pending = Pending {
            request: id.clone(),
            revision,
            what: What::Resource {
                uri: uri.to_owned(),
            },
            is_cancelled: false,
            progress: None,
        };
        self.call("file.read", &call, Some(pending));
        Ok(None)
    }

    /// Makes a call of the server.
    fn call(&mut self, method: &str, params: &Value, pending: Option<Pending>) {
        self.last += 1;
        let line = json!({"id": self.last, "method": method, "params": params});
        self.lines.push_back(Line::Server(line.to_string()));
        self.pending
            .extend(pending.map(|pending| (self.last, pending)));
    }

    /// Ends what a client does not want any more. A context keeps its variables where its
    /// interpreter can be interrupted. A command that is about to begin ends then.
    fn cancel(&mut self, mut params: Map<String, Value>) {
        let request = params.remove("requestId").and_then(rpc::read_id);
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
        let (method, params) = match kill {
            Some(kill) => ("process.signal", kill),
            None => ("cancel", json!({"call": call, "grace": GRACE_SECONDS})),
        };
        self.call(method, &params, None);
        if let Some(pending) = self.pending.get_mut(&call) {
            pending.is_cancelled = true;
        }
    }
}

#[cfg(test)]
mod tests;
