//! Answers as tonic's statuses.

use std::sync::Arc;

use tonic::{Code, Status};

use super::answer::Answer;
use crate::error::BoxError;

/// The same status, with the wait in its metadata.
impl From<Answer> for Status {
    fn from(answer: Answer) -> Self {
        let mut headers = answer.into_parts(super::Protocol::Grpc).0.headers;
        // What is in the metadata besides is the status itself.
        headers.remove(http::header::CONTENT_TYPE);
        headers.remove(super::answer::GRPC_STATUS);
        headers.remove(super::answer::GRPC_MESSAGE);
        Self::with_metadata(
            Code::from(i32::from(answer.grpc_status())),
            answer.detail(),
            tonic::metadata::MetadataMap::from_headers(headers),
        )
    }
}

impl Answer {
    /// The status that says what a call of this crate's layers ended with, the error itself as its
    /// source. For a client of tonic's: put it around the stack with `map_err`, or a deadline that
    /// passed is `Unknown` to whoever matches on codes.
    ///
    /// An error that is not one of this crate's is converted as tonic does it.
    ///
    /// ```
    /// use tower::{ServiceBuilder, ServiceExt};
    /// use tower_deadline::{Answer, CallPolicy, NeverCopy};
    ///
    /// # fn stack(channel: tonic::transport::Channel) {
    /// let channel = ServiceBuilder::new()
    ///     .map_err(Answer::tonic_status)
    ///     .layer(CallPolicy::grpc().grpc_layer().copy(NeverCopy))
    ///     .service(channel);
    /// # let _ = channel;
    /// # }
    /// ```
    #[must_use]
    pub fn tonic_status(error: BoxError) -> Status {
        match Self::of(&error) {
            Some(answer) => {
                let mut status = Status::from(answer);
                status.set_source(Arc::from(error));
                status
            }
            None => Status::from_error(error),
        }
    }
}
