//! What a server says while a call goes on, for the view at a terminal.

use std::cell::RefCell;

use engine::run::Viewer as _;
use record::ResultItem;
use record::error::Result;
use record::event::{Chunk, What};
use serde::Deserialize;
use serde_json::value::RawValue;
use wire::Method;
use wire::client::Client;

use super::print;
use crate::show::Live;

/// Makes a call with events, and shows them as they come.
///
/// # Errors
/// The server's own error, or standard output cannot be written.
pub(super) fn ask<M: Method>(
    client: &mut Client,
    params: &M::Params,
    view: &RefCell<Live>,
) -> Result<M::Answer> {
    let mut shown = Ok(());
    let answer = client.ask_hearing::<M>(params, |event| {
        let text = tell(&mut view.borrow_mut(), event);
        if shown.is_ok() && !text.is_empty() {
            shown = print(text.as_bytes());
        }
    });
    shown.and(answer)
}

/// The view's text for an event; empty for one of another version.
fn tell(view: &mut Live, event: &RawValue) -> String {
    #[derive(Deserialize)]
    struct Named {
        event: String,
    }
    let text = event.get();
    let Ok(Named { event }) = serde_json::from_str(text) else {
        return String::new();
    };
    match event.as_str() {
        "stdout" | "stderr" => told(text, |piece: Piece| {
            let chunk = Chunk {
                text: &piece.text,
                base64: piece.base64,
                cut: piece.cut,
            };
            view.tell(&match event.as_str() {
                "stdout" => What::Stdout(chunk),
                _ => What::Stderr(chunk),
            })
        }),
        "result" => told(text, |shown: Shown| {
            let result = &shown.result;
            view.tell(&What::Result { result })
        }),
        "display_update" => told(text, |shown: Shown| {
            let result = &shown.result;
            view.tell(&What::DisplayUpdate { result })
        }),
        "clear" => view.tell(&What::Clear { wait: false }),
        "cut" => told(text, |cut: Cut| view.tell(&What::Cut { kind: &cut.kind })),
        _ => String::new(),
    }
}

fn told<T: for<'de> Deserialize<'de>>(text: &str, tell: impl FnOnce(T) -> String) -> String {
    serde_json::from_str(text).map(tell).unwrap_or_default()
}

#[derive(Deserialize)]
struct Piece {
    text: String,
    #[serde(default)]
    base64: Option<String>,
    #[serde(default)]
    cut: bool,
}

#[derive(Deserialize)]
struct Shown {
    result: ResultItem,
}

#[derive(Deserialize)]
struct Cut {
    kind: String,
}
