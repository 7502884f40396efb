//! The cells of a sandbox: contexts of the hub.

use record::error::Step;
use serde_json::value::to_raw_value;
use wire::{
    Code, ContextCreate, ContextLabel, ContextListing, ContextName, Failure, FileName, Reason,
    Request, method,
};

use super::{CodeContext, MOST_CONTEXTS, Sandbox};
use crate::client::Client;
use crate::e2b::answers::gone;
use crate::e2b::code::{at_start, change_directory};
use crate::e2b::envd::inside;
use crate::e2b::{HOME, WORKSPACE};
use crate::runs::{self, ContextRun};

/// The label of the contexts of sandboxes.
const LABEL: &str = "e2b";

impl Sandbox {
    /// If there is no room for another context, forgets those that the hub no longer has.
    ///
    /// # Errors
    /// See [`Client::ask`].
    pub(in crate::e2b) async fn make_room(&self, client: &mut Client) -> Result<(), Failure> {
        if self.inside().contexts.len() < MOST_CONTEXTS {
            return Ok(());
        }
        let all = ContextListing::default();
        let listed = client.ask::<method::ContextList>(&all).await?;
        let is_there = |own: &CodeContext| listed.contexts.iter().any(|it| it.context == own.id);
        // Default contexts get their cells when they are used.
        let mut inside = self.inside();
        inside
            .contexts
            .retain(|own| own.is_default || is_there(own));
        Ok(())
    }

    /// Starts the interpreter of a context that has none: in the sandbox's cell, if the cell's
    /// rootfs has the language, and else in a cell of its own.
    ///
    /// # Errors
    /// Those of `context.create`; the sandbox is gone.
    pub(in crate::e2b) async fn open(
        &self,
        client: &mut Client,
        context: &CodeContext,
    ) -> Result<(), Failure> {
        let has_own_cell = context.id == self.main;
        let opened = match self.start(client, context, !has_own_cell).await {
            Err(failure) if !has_own_cell && failure.code == Code::NotFound => {
                // The sandbox's cell is not made yet, or was lost.
                let main = self.context(|own| own.id == self.main);
                let main = main.ok_or_else(|| gone(&self.id))?;
                self.start(client, &main, false).await?;
                self.start(client, context, true).await
            }
            opened => opened,
        };
        match opened {
            Err(failure) if !has_own_cell && failure.step == Some(Step::Interpreter) => {
                self.start(client, context, false).await
            }
            opened => opened,
        }
    }

    /// Makes a context of the hub, in the sandbox's cell where it is `shared`.
    async fn start(
        &self,
        client: &mut Client,
        context: &CodeContext,
        shared: bool,
    ) -> Result<(), Failure> {
        let creation = &self.creation;
        let network = creation.network.as_ref().filter(|_| !shared);
        let request = Request {
            language: Some(&context.language),
            env: Some(&creation.envs).filter(|envs| !envs.is_empty()),
            network: network.and_then(|network| to_raw_value(network).ok()),
            ..Request::default()
        };
        let params = ContextCreate {
            context: Some(context.id.clone()),
            label: Some(LABEL.to_owned()),
            keep: true,
            branches: !shared && creation.branches && context.language == "python",
            cell_of: shared.then(|| self.main.clone()),
            ..ContextCreate::new(request.raw())
        };
        match client.ask::<method::ContextCreate>(&params).await {
            // Another request has made it meanwhile.
            Err(failure) if is_there_already(&failure) => return Ok(()),
            created => drop(created?),
        }
        // The sandbox may have ended meanwhile, or forgotten this context, which did not exist yet.
        if self.inside().is_gone || self.context(|own| own.id == context.id).is_none() {
            delete(client, &context.id).await?;
            return Err(gone(&self.id));
        }
        if let Some(code) = at_start(&context.language, &creation.envs) {
            self.prepare(client, context, &code).await?;
        }
        if context.cwd != HOME {
            self.enter(client, context).await?;
        }
        Ok(())
    }

    /// Makes the cell of the context with its files.
    ///
    /// # Errors
    /// See [`Sandbox::open`].
    pub(in crate::e2b) async fn open_main(&self, client: &mut Client) -> Result<(), Failure> {
        let main = self.context(|context| context.id == self.main);
        let main = main.ok_or_else(|| gone(&self.id))?;
        self.open(client, &main).await
    }

    /// A directory as programs in its cells name it.
    pub(in crate::e2b) fn directory(&self, given: &str) -> String {
        match given.strip_prefix(HOME) {
            Some(rest) if !self.creation.has_home && (rest.is_empty() || rest.starts_with('/')) => {
                format!("{WORKSPACE}{rest}")
            }
            _ => given.to_owned(),
        }
    }

    /// Changes the directory of a context's interpreter. One below the user's directory is made.
    ///
    /// # Errors
    /// The directory does not exist; there is no code for this in the language.
    pub(in crate::e2b) async fn enter(
        &self,
        client: &mut Client,
        context: &CodeContext,
    ) -> Result<(), Failure> {
        let code = change_directory(&context.language, &self.directory(&context.cwd))?;
        if let Ok(path) = inside(&context.cwd) {
            let params = FileName::new(&context.id, path);
            // If it was not made, and did not exist, it cannot be entered either.
            let _ = client.ask::<method::FileMakeDirectory>(&params).await;
        }
        match self.prepare(client, context, &code).await? {
            true => Ok(()),
            false => {
                let message = format!("cwd: cannot change to {:?}", context.cwd);
                Err(Failure::new(Code::Failed, message))
            }
        }
    }

    /// Executes code that no client asked for; returns whether it succeeded.
    ///
    /// # Errors
    /// Those of `context.run`.
    pub(in crate::e2b) async fn prepare(
        &self,
        client: &mut Client,
        context: &CodeContext,
        code: &str,
    ) -> Result<bool, Failure> {
        let params = ContextRun::new(&context.id, code);
        let ran = runs::execute(client, &params).await?;
        let mut inside = self.inside();
        let mut all = inside.contexts.iter_mut();
        if let Some(own) = all.find(|own| own.id == context.id) {
            own.hidden += 1;
        }
        Ok(!ran.record.is_error)
    }

    /// Ends the cells of all its contexts.
    ///
    /// # Errors
    /// The first error of `context.delete`; the other contexts are deleted.
    pub(in crate::e2b) async fn end(&self, client: &mut Client) -> Result<(), Failure> {
        let mut ended = Ok(());
        for context in self.contexts() {
            ended = ended.and(delete(client, &context.id).await);
        }
        ended
    }

    /// Makes the hub keep its cells for the longest time that it keeps an idle one.
    ///
    /// # Errors
    /// The server is ending.
    pub(in crate::e2b) async fn touch(&self, client: &mut Client) -> Result<(), Failure> {
        for context in self.contexts() {
            let params = ContextLabel {
                context: context.id,
                label: Some(LABEL.to_owned()),
                keep: false,
            };
            match client.ask::<method::ContextLabel>(&params).await {
                Err(failure) if failure.code == Code::NotFound => {}
                touched => {
                    touched?;
                }
            }
        }
        Ok(())
    }
}

/// Whether a context could not be made because it exists.
fn is_there_already(failure: &Failure) -> bool {
    failure.reason == Some(Reason::Exists)
}

/// Deletes a context, if it exists.
pub(in crate::e2b) async fn delete(client: &mut Client, context: &str) -> Result<(), Failure> {
    let params = ContextName::new(context);
    match client.ask::<method::ContextDelete>(&params).await {
        Err(failure) if failure.code != Code::NotFound => Err(failure),
        _ => Ok(()),
    }
}
