//! Lines of calls, and of what the server says to them.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{CallId, Code, Failure, Method};

/// Longer lines of the server end a connection: a record holds streams and results of bounded
/// length.
pub const LONGEST_ANSWER: usize = 300 << 20;

/// A call as a line, without its end.
///
/// # Errors
/// A parameter has no form in JSON, such as a path that is not UTF-8.
pub fn call_line<M: Method>(id: i64, params: &M::Params) -> serde_json::Result<String> {
    line_of(id, M::NAME, params)
}

/// The same where only what made `params` has their type.
///
/// # Errors
/// See [`call_line`].
pub fn line_of(id: i64, method: &str, params: &impl Serialize) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Call<'a, T> {
        id: i64,
        method: &'a str,
        params: &'a T,
    }
    serde_json::to_string(&Call { id, method, params })
}

/// What the server says to a call.
#[derive(Debug)]
pub enum Said {
    /// Something happened meanwhile.
    Event(Box<RawValue>),
    /// The call's result.
    Result(Box<RawValue>),
}

impl Said {
    /// What a line says to the call `id`; `None` if it is about something else.
    ///
    /// # Errors
    /// The call's own error, or that of the whole connection; it is no line of a server.
    pub fn read(line: &[u8], id: i64) -> Result<Option<Self>, Failure> {
        #[derive(Deserialize)]
        struct Line {
            id: Option<CallId>,
            #[serde(default)]
            event: Option<Box<RawValue>>,
            #[serde(default)]
            result: Option<Box<RawValue>>,
            #[serde(default)]
            error: Option<Failure>,
        }
        let line: Line = record::json::from_slice(line)
            .map_err(|error| Failure::new(Code::Failed, format!("not a server's line: {error}")))?;
        let is_own = line.id == Some(CallId::Number(id));
        match (line.error, line.result, line.event) {
            (Some(failure), ..) if is_own || line.id.is_none() => Err(failure),
            (_, Some(result), _) if is_own => Ok(Some(Self::Result(result))),
            (.., Some(event)) if is_own => Ok(Some(Self::Event(event))),
            // News of a context that ended.
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ContextName, method};

    #[test]
    fn a_line_is_about_a_call_or_something_else() {
        let read = |line: &str| Said::read(line.as_bytes(), 7);
        let own = read(r#"{"id":7,"event":{"event":"started"}}"#);
        assert!(matches!(own, Ok(Some(Said::Event(_)))), "{own:?}");
        let own = read(r#"{"id":7,"result":{}}"#);
        assert!(matches!(own, Ok(Some(Said::Result(_)))), "{own:?}");
        for other in [
            r#"{"id":6,"result":{}}"#,
            r#"{"id":"7","error":{"code":"lost","message":"m"}}"#,
            r#"{"id":null,"event":{"event":"context_ended"}}"#,
        ] {
            assert!(matches!(read(other), Ok(None)), "{other}");
        }
        for (line, code) in [
            (
                r#"{"id":7,"error":{"code":"busy","message":"m"}}"#,
                Code::Busy,
            ),
            // That of the whole connection.
            (
                r#"{"id":null,"error":{"code":"too_long","message":"m"}}"#,
                Code::TooLong,
            ),
            ("[", Code::Failed),
        ] {
            assert_eq!(read(line).unwrap_err().code, code, "{line}");
        }
    }

    #[test]
    fn a_call_has_the_name_of_its_method() {
        let line = call_line::<method::ContextDelete>(3, &ContextName::new("a")).unwrap();
        assert_eq!(
            line,
            r#"{"id":3,"method":"context.delete","params":{"context":"a"}}"#
        );
    }
}
