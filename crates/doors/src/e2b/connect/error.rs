//! Errors of the Connect protocol, and how those of the hub become such errors.

use axum::http::StatusCode;
use record::json::Object;
use record::object;
use wire::Failure;

use crate::e2b::answers;

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::e2b) enum Code {
    InvalidArgument,
    NotFound,
    AlreadyExists,
    ResourceExhausted,
    FailedPrecondition,
    Unimplemented,
    Internal,
    Unavailable,
}

/// Why a call has no answer.
#[derive(Debug, PartialEq)]
pub(in crate::e2b) struct Error {
    pub(in crate::e2b) code: Code,
    pub(in crate::e2b) message: String,
}

impl Code {
    const fn name(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid_argument",
            Self::NotFound => "not_found",
            Self::AlreadyExists => "already_exists",
            Self::ResourceExhausted => "resource_exhausted",
            Self::FailedPrecondition => "failed_precondition",
            Self::Unimplemented => "unimplemented",
            Self::Internal => "internal",
            Self::Unavailable => "unavailable",
        }
    }

    pub(super) const fn status(self) -> StatusCode {
        match self {
            Self::InvalidArgument | Self::FailedPrecondition => StatusCode::BAD_REQUEST,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::AlreadyExists => StatusCode::CONFLICT,
            Self::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            Self::Unimplemented => StatusCode::NOT_IMPLEMENTED,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl Error {
    pub(in crate::e2b) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    pub(super) fn json(&self) -> Object<'static> {
        object! {"code": self.code.name(), "message": self.message}
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        use wire::Code as Own;
        let code = match (failure.code, failure.errno.as_deref()) {
            (Own::NotFound, Some("ENOENT")) => Code::NotFound,
            // A context.
            (Own::NotFound, None) => return Self::new(Code::Unavailable, answers::NO_SANDBOX),
            (Own::Failed, Some("EEXIST" | "ENOTEMPTY")) => Code::AlreadyExists,
            // Not `resource_exhausted`, which means too many requests.
            (Own::Failed, Some("ENOSPC" | "EDQUOT")) => Code::FailedPrecondition,
            (Own::Failed, Some(_)) | (Own::BadParams | Own::BadRequest | Own::TooLong, _) => {
                Code::InvalidArgument
            }
            (Own::NotFound, _) => Code::NotFound,
            (Own::UnknownMethod, _) => Code::Unimplemented,
            (Own::Busy, _) => Code::ResourceExhausted,
            (Own::Lost | Own::ShuttingDown | Own::Cancelled, _) => Code::Unavailable,
            (Own::NotAllowed | Own::DuplicateId, _) => Code::Internal,
            (Own::Failed, None) => Code::FailedPrecondition,
        };
        Self::new(code, answers::words(&failure))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_busy_server_is_asked_again() {
        use wire::Code as Own;
        let full = Failure {
            errno: Some("ENOSPC".to_owned()),
            ..Failure::new(Own::Failed, "no space left")
        };
        assert_eq!(Error::from(full).code, Code::FailedPrecondition);
        let busy = Error::from(Failure::new(Own::Busy, "the server is busy"));
        assert_eq!(busy.code.status(), StatusCode::TOO_MANY_REQUESTS);
    }
}
