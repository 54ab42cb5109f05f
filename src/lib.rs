//! Two clocks for every call.
//!
//! A retried call needs two bounds, and most have one. A **deadline** bounds the whole call: every
//! attempt and every backoff. An **attempt timeout** bounds one attempt, and the gap between two reads
//! of the body that it returned. With one bound for both jobs, a timeout of 30 seconds and three
//! attempts hang a user for 90, and a response whose body stops hangs for ever.
//!
//! [`CallPolicy`] holds the numbers as one value, which is checked when it compiles, builds the whole
//! stack, and says how long a call takes at most:
//!
//! ```
//! use std::time::Duration;
//! use bytes::Bytes;
//! use http_body_util::Full;
//! use hyper_util::client::legacy::Client;
//! use hyper_util::rt::TokioExecutor;
//! use tower::ServiceBuilder;
//! use tower_deadline::CallPolicy;
//!
//! const API: CallPolicy = CallPolicy::http()
//!     .attempt_timeout(Duration::from_secs(2))
//!     .checked();
//!
//! println!("{}", API.explain());
//! let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
//! let client = ServiceBuilder::new().layer(API.layer()).service(client);
//! # let _ = client;
//! ```
//!
//! Each bound is a [tower](https://docs.rs/tower) layer of its own. They work alone, around any service
//! that their job allows; together, in this order, they know each other's facts:
//!
//! | layer | bounds or does |
//! | --- | --- |
//! | [`OverrideLayer`] | puts a request's own numbers into force |
//! | [`DeadlineLayer`] | the whole call |
//! | [`BoundReadinessLayer`] | makes queueing count (optional) |
//! | [`DeadlineBodyLayer`] | the body by the deadline as well (optional) |
//! | [`RetryLayer`] | another attempt, where it fits, is safe, and is affordable |
//! | [`AttemptTimeoutLayer`] | one attempt |
//! | [`PropagateLayer`] | tells the peer how long that is (optional) |
//! | [`BufferResponsesLayer`] | reads the body inside the attempt (optional) |
//! | [`ProgressBoundLayer`] | the gaps in the body |
//!
//! ```
//! use std::time::Duration;
//! use tower::ServiceBuilder;
//! use tower_deadline::{AttemptTimeoutLayer, DeadlineLayer, ProgressBoundLayer, RetryLayer};
//!
//! const ATTEMPT: Duration = Duration::from_secs(2);
//!
//! let stack = ServiceBuilder::new()
//!     .layer(DeadlineLayer::new(Duration::from_secs(30)))
//!     .layer(RetryLayer::http().attempts(3))
//!     .layer(AttemptTimeoutLayer::http(ATTEMPT))
//!     .layer(ProgressBoundLayer::new(ATTEMPT));
//! # let _ = stack;
//! ```
//!
//! Their order decides what they mean. A deadline inside a retry, a retry inside a retry or inside an
//! attempt timeout, and a bound on the gaps without an attempt timeout are reported through `tracing`, once
//! for each stack.
//!
//! What went wrong is told by the error: [`DeadlineExceeded`], [`AttemptTimedOut`],
//! [`AttemptStalled`], [`RetryRefused`], each found behind boxes and wrappers with its `find`. The
//! code inside a call asks [`call`] what it may count on.
//!
//! # Deadlines that travel
//!
//! A client tells each attempt's peer how long it waits ([`CallPolicy::propagate_deadline`],
//! [`CallPolicy::grpc`], [`PropagateLayer`]); a server listens, and drops what nobody waits for any longer
//! ([`InheritLayer`]); the calls that its handlers make have what is left ([`CallPolicy::inherit`]); and what
//! ends one is told to the caller as a problem document or a gRPC status ([`Answer`],
//! [`AnswerErrorsLayer`]). See [`hop`].
//!
//! # In a spawned task
//!
//! Where an inner service is a closure that returns a future whose error is [`BoxError`], and the stack is used inside an
//! `async` block that is spawned, the compiler may say "implementation of `From` is not general
//! enough". That is a limit of its own, which tower's layers meet as well. Give the closure an error
//! type of its own, or spawn the future that `call` returns.
//!
//! # Features
//!
//! | feature | default | |
//! | --- | --- | --- |
//! | `hyper` | on | recognise hyper's and hyper-util's transport errors |
//! | `http2` | on | recognise HTTP/2 errors |
//! | `reqwest` | off | recognise reqwest's transport errors |
//! | `axum` | off | an [`Answer`] is a response of axum's handlers |
//! | `tonic` | off | an [`Answer`] is a status of tonic's, and tonic's timeout is known for what it is |
//! | `serde` | off | read a [`CallPolicy`] from a file |

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)
)]

pub mod attempt_timeout;
pub mod buffer;
pub mod call;
pub mod classify;
pub mod deadline;
pub mod event;
pub mod hop;
pub mod policy;
pub mod progress;
pub mod retry;

mod body_of;
mod digits;
mod error;
mod key;
mod keyed;
mod latency;
mod timer;

#[doc(inline)]
pub use self::attempt_timeout::{AttemptCeiling, AttemptTimeoutLayer, Measured};
#[doc(inline)]
pub use self::buffer::{BufferResponsesLayer, BufferedBody, BufferedTrailers};
#[doc(inline)]
pub use self::call::{
    Attempt, AttemptLog, Bound, CallOverride, Criticality, DeadlineOrigin, OverrideLayer, Phase,
    Setting,
};
#[doc(inline)]
pub use self::classify::{
    AttemptError, AttemptResult, Classify, ErrorClassifier, GrpcClassifier, HttpClassifier,
    Verdict, never_left,
};
#[doc(inline)]
pub use self::deadline::{BoundReadinessLayer, DeadlineBody, DeadlineBodyLayer, DeadlineLayer};
pub use self::error::{
    AsDynError, AttemptStalled, AttemptTimedOut, BoxError, DeadlineExceeded, RetryRefused,
    is_timeout,
};
#[doc(inline)]
pub use self::event::{Event, EventKind, Listener, StopReason};
#[doc(inline)]
pub use self::hop::{
    Answer, AnswerBody, AnswerErrorsLayer, DeadlineHeader, HopHeaders, InheritLayer, Inherited,
    PropagateLayer, Protocol,
};
pub use self::key::{Authority, Key, KeyOf, OneDependency};
#[doc(inline)]
pub use self::policy::{CallPolicy, PolicyError, Problem};
#[doc(inline)]
pub use self::progress::{AnyBytes, Progress, ProgressBody, ProgressBoundLayer};
#[doc(inline)]
pub use self::retry::{
    AnyRequest, Backoff, ByMethod, CloneRequest, CopyRequest, Jitter, NeverCopy, Repeat,
    Repeatable, RetryBudget, RetryLayer,
};

/// The examples of the README are compiled with those of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
