//! `cellblock context`: contexts for a shell, each with a server of its own.

mod create;
mod exec;
mod execute;
mod place;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write as _};

use super::{FAILED, complain, print};
use crate::cli::{self, ContextAction, Of};
use place::Place;
use record::error::{Result, SetupError, Step};
use record::terminal;
use serde::Serialize;
use serde_json::{Value, json};
use sys::inherited::Inherited;
use wire::{
    ContextFork, ContextInfo, ContextInterrupt, ContextListing, ContextName, ContextRewind, Method,
    State, method,
};

/// The ids of the contexts that exist, for completion.
pub(super) fn ids() -> Vec<String> {
    let place = Place::find(|name| std::env::var_os(name));
    place.and_then(|place| place.ids()).unwrap_or_default()
}

/// Does what the command line says.
///
/// # Errors
/// The context does not exist, or its server refuses.
#[inline(never)]
pub(super) fn run(
    context: &cli::Context,
    words: &[OsString],
    environment: impl Fn(&str) -> Option<OsString>,
    inherited: &mut Inherited,
) -> Result<u8> {
    let done = act(context, words, environment, inherited);
    if let (Err(error), true) = (&done, wants_json(&context.action)) {
        print_json(&json!({"error": error}))?;
    }
    done
}

/// Whether an error is printed as JSON, too. `context run` has a record for that.
fn wants_json(action: &ContextAction) -> bool {
    match action {
        ContextAction::Create(create) => create.own.json,
        ContextAction::Run(_) | ContextAction::Exec(_) => false,
        ContextAction::Interrupt { of, .. }
        | ContextAction::Restart(of)
        | ContextAction::Fork { of, .. }
        | ContextAction::Checkpoint(of)
        | ContextAction::Rewind { of, .. }
        | ContextAction::Suspend(of)
        | ContextAction::Resume(of)
        | ContextAction::Describe(of)
        | ContextAction::Delete(of) => of.json,
        ContextAction::List { json } => *json,
    }
}

fn act(
    context: &cli::Context,
    words: &[OsString],
    environment: impl Fn(&str) -> Option<OsString>,
    inherited: &mut Inherited,
) -> Result<u8> {
    let place = Place::find(&environment)?;
    match &context.action {
        ContextAction::Create(wanted) => {
            let created = create::create(&place, wanted, words)?;
            match wanted.own.json {
                true => print_json(&created)?,
                false => print(format!("{}\n", created.context).as_bytes())?,
            }
            Ok(0)
        }
        ContextAction::Run(wanted) => execute::execute(&place, wanted, inherited),
        ContextAction::Exec(wanted) => exec::exec(&place, wanted, &environment),
        ContextAction::Interrupt { of, grace } => {
            let params = ContextInterrupt {
                context: of.id.clone(),
                execution: None,
                grace: *grace,
            };
            let done = place
                .connect(&of.id)?
                .ask::<method::ContextInterrupt>(&params)?;
            let words = match done.interrupted {
                true => "interrupted",
                false => "it executes nothing",
            };
            show(of, &json!(done), words)
        }
        ContextAction::Restart(of) => ask::<method::ContextRestart>(&place, of, "restarted"),
        ContextAction::Delete(of) => {
            let status = ask::<method::ContextDelete>(&place, of, "deleted")?;
            place.forget(&of.id);
            Ok(status)
        }
        ContextAction::Suspend(of) => ask::<method::ContextSuspend>(&place, of, "suspended"),
        ContextAction::Fork { of, n } => fork(&place, of, *n),
        ContextAction::Checkpoint(of) => {
            let mut client = place.connect(&of.id)?;
            let made = client.ask::<method::ContextCheckpoint>(&name(of))?;
            match of.json {
                true => print_json(&made)?,
                false => print(format!("{}\n", made.checkpoint).as_bytes())?,
            }
            Ok(0)
        }
        ContextAction::Rewind { of, checkpoint } => {
            let params = ContextRewind {
                context: of.id.clone(),
                checkpoint: *checkpoint,
            };
            let back = place
                .connect(&of.id)?
                .ask::<method::ContextRewind>(&params)?;
            let words = match (back.state, &back.why) {
                (State::Lost, Some(why)) => format!("is lost: {why}"),
                _ => format!("has the state of checkpoint {}", back.checkpoint),
            };
            show(of, &json!(back), &words)
        }
        ContextAction::Resume(of) => {
            let resumed = place
                .connect(&of.id)?
                .ask::<method::ContextResume>(&name(of))?;
            let words = match (resumed.state, &resumed.why) {
                (State::Lost, Some(why)) => format!("is lost: {why}"),
                (State::Restored, Some(why)) => why.clone(),
                _ => "has its state".to_owned(),
            };
            show(of, &json!(resumed), &words)
        }
        ContextAction::Describe(of) => {
            let mut client = place.connect(&of.id)?;
            let answer: Value = client.ask_as::<method::ContextDescribe, _>(&name(of))?;
            print_json(&answer)?;
            Ok(0)
        }
        ContextAction::List { json } => list(&place, *json),
    }
}

fn name(of: &Of) -> ContextName {
    ContextName::new(&of.id)
}

fn ask<M>(place: &Place, of: &Of, words: &str) -> Result<u8>
where
    M: Method<Params = ContextName, Answer: Serialize>,
{
    let answer = place.connect(&of.id)?.ask::<M>(&name(of))?;
    show(of, &json!(answer), words)
}

fn show(of: &Of, answer: &Value, words: &str) -> Result<u8> {
    match of.json {
        true => print_json(answer)?,
        false => print(format!("{}: {words}\n", of.id).as_bytes())?,
    }
    Ok(0)
}

/// `context fork`: 0 if all branches are there.
fn fork(place: &Place, of: &Of, n: usize) -> Result<u8> {
    let params = ContextFork {
        context: of.id.clone(),
        n,
    };
    let forked = place.connect(&of.id)?.ask::<method::ContextFork>(&params)?;
    let mut status = 0;
    for id in forked
        .branches
        .iter()
        .filter_map(|one| one.context.as_ref())
    {
        // The branch is there, and so is its line in the output.
        if let Err(error) = place.share(&of.id, id) {
            status = FAILED;
            complain(&error);
        }
    }
    if of.json {
        print_json(&forked)?;
    }
    for branch in forked.branches {
        match (branch.context, branch.error) {
            (Some(id), _) if !of.json => print(format!("{id}\n").as_bytes())?,
            (Some(_), _) => {}
            (None, error) => {
                status = FAILED;
                let message = error.map_or_else(String::new, |error| error.message);
                let failed = SetupError::new(Step::State, format!("a branch failed: {message}"));
                complain(&failed.on(&of.id));
            }
        }
    }
    Ok(status)
}

/// `context list`
fn list(place: &Place, json: bool) -> Result<u8> {
    // A server may have several contexts, and is found by the id of each.
    let mut all = BTreeMap::new();
    for id in place.ids()? {
        // One that ends just now is not there.
        let listed = place
            .connect(&id)
            .and_then(|mut client| client.ask::<method::ContextList>(&ContextListing::default()));
        let contexts = listed.into_iter().flat_map(|list| list.contexts);
        all.extend(contexts.map(|info| (info.context.clone(), info)));
    }
    let all: Vec<ContextInfo> = all.into_values().collect();
    match json {
        true => print_json(&all)?,
        false => print(terminal::lines(&table(&all)).as_bytes())?,
    }
    Ok(0)
}

fn table(contexts: &[ContextInfo]) -> String {
    let mut text = String::new();
    for info in contexts {
        text.push_str(&format!(
            "{}  {:<10}  {:<9}  {} executions, idle {}s of {}s{}\n",
            info.context,
            info.language.as_deref().unwrap_or("-"),
            info.doing,
            info.executions,
            info.idle_ms / 1000,
            info.idle_limit_ms / 1000,
            info.label
                .as_ref()
                .map_or(String::new(), |label| format!("  {label}")),
        ));
    }
    text
}

fn print_json(value: &impl serde::Serialize) -> Result<()> {
    let mut text = serde_json::to_string(value)
        .map_err(|error| SetupError::new(Step::Outputs, error.to_string()))?;
    text.push('\n');
    let mut stdout = io::stdout();
    let is_terminal = stdout.is_terminal();
    let mut to = terminal::Json::new(&mut stdout, is_terminal);
    to.write_all(text.as_bytes())
        .and_then(|()| to.flush())
        .map_err(|error| SetupError::io(Step::Outputs, "write", &error).on("standard output"))
}
