//! Calls of envd's services: the parts that reading and answering them have in common.

use std::io;
use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::{MethodRouter, post};
use futures_util::{Stream, StreamExt as _};
use record::json::Object;
use serde::de::DeserializeOwned;
use wire::{Code, Failure, Method};

use crate::client::Client;
use crate::e2b::answers;
use crate::e2b::connect::{self, Error, Messages};
use crate::e2b::sandboxes::Sandbox;
use crate::front::Guarded;

/// A call with one message.
pub(super) struct Call<T> {
    guarded: Guarded,
    pub(super) sandbox: Arc<Sandbox>,
    pub(super) headers: HeaderMap,
    pub(super) message: T,
}

impl<T> Call<T> {
    /// # Errors
    /// The server has no room for it.
    pub(super) fn client(&self) -> Result<SandboxClient, Failure> {
        SandboxClient::connect(&self.guarded, &self.sandbox)
    }
}

/// The route of a method with one answer.
pub(super) fn unary<T, A>(
    method: impl Fn(Call<T>) -> A + Clone + Send + Sync + 'static,
) -> MethodRouter<Guarded>
where
    T: DeserializeOwned + Send + 'static,
    A: Future<Output = Result<Object<'static>, Error>> + Send,
{
    let answer = async move |State(guarded): State<Guarded>,
                             Extension(sandbox): Extension<Arc<Sandbox>>,
                             headers: HeaderMap,
                             body: Body| {
        let answer = async {
            let message = connect::unary(&headers, body).await?;
            method(Call {
                guarded,
                sandbox,
                headers,
                message,
            })
            .await
        };
        connect::answer(answer.await)
    };
    post(answer)
}

/// The route of a method that answers with a stream of envelopes. If the sandbox ends, the answer
/// breaks off, and clients ask what became of it.
pub(super) fn server_stream<T, A, S>(
    method: impl Fn(Call<T>) -> A + Clone + Send + Sync + 'static,
) -> MethodRouter<Guarded>
where
    T: DeserializeOwned + Send + 'static,
    A: Future<Output = Result<S, Error>> + Send,
    S: Stream<Item = Bytes> + Send + 'static,
{
    let answer = async move |State(guarded): State<Guarded>,
                             Extension(sandbox): Extension<Arc<Sandbox>>,
                             headers: HeaderMap,
                             body: Body| {
        let own = Arc::clone(&sandbox);
        let envelopes = async {
            let message = Messages::new(&headers, body)?.only().await?;
            method(Call {
                guarded,
                sandbox,
                headers,
                message,
            })
            .await
        };
        match envelopes.await {
            Ok(envelopes) => connect::stream(envelopes.map(move |envelope| match own.is_gone() {
                true => Err(io::Error::other(answers::gone(&own.id).message)),
                false => Ok(envelope),
            })),
            Err(error) => connect::failed(&error),
        }
    };
    post(answer)
}

/// A client of the hub for the files and processes of a sandbox.
pub(super) struct SandboxClient {
    pub(super) client: Client,
    pub(super) sandbox: Arc<Sandbox>,
}

impl SandboxClient {
    /// # Errors
    /// See [`Client::connect`].
    pub(super) fn connect(guarded: &Guarded, sandbox: &Arc<Sandbox>) -> Result<Self, Failure> {
        Ok(Self {
            client: guarded.client(sandbox.party)?,
            sandbox: Arc::clone(sandbox),
        })
    }

    /// Makes a call about that context, in its new cell if it has none yet.
    /// Events of the call follow by [`Client::next`].
    ///
    /// # Errors
    /// See [`Client::ask`].
    pub(super) async fn ask<M: Method>(
        &mut self,
        params: &M::Params,
    ) -> Result<M::Answer, Failure> {
        let (client, sandbox) = (&mut self.client, &self.sandbox);
        match client.ask::<M>(params).await {
            Err(failure) if is_missing(&failure) && sandbox.is_made_when_used() => {
                sandbox.open_main(client).await?;
                client.ask::<M>(params).await
            }
            answer => answer,
        }
    }

    /// The context that has the files.
    pub(super) fn context(&self) -> String {
        self.sandbox.main.clone()
    }
}

/// Whether the context is missing, rather than a file.
fn is_missing(failure: &Failure) -> bool {
    failure.code == Code::NotFound && failure.errno.is_none()
}
