//! The stack of a policy, for HTTP.

use std::fmt;

use tower_layer::Layer;

use super::http_service::HttpCall;
use super::layer::CallLayer;
use super::value::CallPolicy;
use crate::attempt_timeout::{AttemptTimeoutLayer, Measured};
use crate::buffer::BufferResponsesLayer;
use crate::classify::{GrpcClassifier, HttpClassifier};
use crate::event::Listener;
use crate::hop::PropagateLayer;
use crate::key::Authority;
use crate::progress::{AnyBytes, Progress, ProgressBoundLayer};
use crate::retry::{AnyRequest, ByMethod, CloneRequest, RetryBudget, RetryLayer};

/// The layers of a [`CallPolicy`] in their order, around any HTTP service.
///
/// Made by [`CallPolicy::layer`]. The inner service must be `Clone`, as clients are. The response's
/// body is [`CallBody`](super::CallBody), the error type [`BoxError`](crate::BoxError). The numbers
/// are those of the policy; what is not a number is given here.
///
/// What was measured and the retry budgets belong to the layer, one of each for every
/// [`Authority`]. Every service that it, or a clone of it, makes shares them; another layer of the
/// same policy has its own. So make the layer once: in one that is made for each request nothing is
/// ever warm, and every budget is full.
///
/// ```
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_deadline::{BoxError, CallPolicy, Event, RetryBudget};
///
/// const API: CallPolicy = CallPolicy::http().checked();
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let shared = RetryBudget::automatic();
/// let layer = API
///     .layer()
///     .budget(shared.clone()) // with another stack
///     .on_event(|event: &Event<'_>| println!("{:?}", event.kind));
/// let client = ServiceBuilder::new().layer(layer).service(service_fn(
///     |_: http::Request<http_body_util::Empty<&[u8]>>| async {
///         Ok::<_, BoxError>(http::Response::new(http_body_util::Full::<bytes::Bytes>::from("hello")))
///     },
/// ));
/// let request = http::Request::get("http://example.com/").body(http_body_util::Empty::new());
/// assert!(client.oneshot(request.unwrap()).await.unwrap().status().is_success());
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct HttpCallLayer<
    C = HttpClassifier,
    Y = CloneRequest,
    K = Authority,
    R = ByMethod,
    P = AnyBytes,
> {
    core: CallLayer<C, Y, K, R>,
    propagate: PropagateLayer,
    buffer: BufferResponsesLayer,
    progress: ProgressBoundLayer<P>,
}

impl CallPolicy {
    /// The stack of this policy, around any HTTP service.
    ///
    /// Budgets and estimates begin anew with each layer that is made; see [`HttpCallLayer`].
    pub fn layer(self) -> HttpCallLayer {
        HttpCallLayer::of(&self)
    }

    /// The stack of this policy around a gRPC channel: verdicts are those of [`GrpcClassifier`], and
    /// every method may be called again, unless a [`CallOverride`](crate::CallOverride) says otherwise for a
    /// request. Beside that it is [`layer`](Self::layer).
    ///
    /// A method that is not safe to call twice opts out:
    ///
    /// ```
    /// use tower_deadline::{CallOverride, CallPolicy};
    ///
    /// const PEER: CallPolicy = CallPolicy::grpc().checked();
    ///
    /// let layer = PEER.grpc_layer();
    /// let mut request = http::Request::new(());
    /// request.extensions_mut().insert(CallOverride::new().no_retry());
    /// # let _ = layer;
    /// ```
    ///
    /// Around tonic's channel, see [`Answer::tonic_status`](crate::Answer::tonic_status) for the errors. The
    /// requests of tonic's own clients have a body that is not `Clone`: with
    /// [`NeverCopy`](crate::NeverCopy) they are bounded and not repeated.
    pub fn grpc_layer(self) -> HttpCallLayer<GrpcClassifier, CloneRequest, Authority, AnyRequest> {
        self.layer()
            .classifier(GrpcClassifier)
            .repeatable(AnyRequest)
    }
}

impl HttpCallLayer {
    fn of(policy: &CallPolicy) -> Self {
        let attempt = match policy.attempt_timeout {
            Some(timeout) => AttemptTimeoutLayer::http(timeout),
            None => AttemptTimeoutLayer::unbounded()
                .classifier(HttpClassifier)
                .key(Authority),
        };
        let retry = RetryLayer::http().retry_unsafe_methods(policy.retry_unsafe_methods);
        Self {
            core: CallLayer::of(policy, retry, attempt, Authority),
            propagate: PropagateLayer::sending(policy.sent),
            buffer: match policy.buffering {
                Some(max_bytes) => BufferResponsesLayer::new().max_bytes(max_bytes),
                None => BufferResponsesLayer::on_request(),
            },
            progress: match policy.gap() {
                Some(gap) => ProgressBoundLayer::new(gap),
                None if policy.bounds_progress() => ProgressBoundLayer::unbounded(),
                None => ProgressBoundLayer::off(),
            }
            .by_deadline(policy.bound_body),
        }
    }
}

impl<C, Y, K, R, P> HttpCallLayer<C, Y, K, R, P> {
    /// The same with another core.
    fn with_core<D, Z, L, Q>(
        self,
        exchange: impl FnOnce(CallLayer<C, Y, K, R>) -> CallLayer<D, Z, L, Q>,
    ) -> HttpCallLayer<D, Z, L, Q, P> {
        HttpCallLayer {
            core: exchange(self.core),
            propagate: self.propagate,
            buffer: self.buffer,
            progress: self.progress,
        }
    }

    /// Which responses and errors are failures, and of what kind: [`HttpClassifier`] by default. It
    /// sees the responses of attempts, whose body is [`AttemptBody`](super::AttemptBody). A closure need not
    /// name that: `|result: AttemptResult<'_, http::Response<_>>| ..` does.
    pub fn classifier<D: Clone>(self, classifier: D) -> HttpCallLayer<D, Y, K, R, P> {
        self.with_core(|core| core.classifier(classifier))
    }

    /// How a request is copied before it is sent, where a retry could follow: by `Clone` by default.
    /// For a body that is not, there is [`NeverCopy`](crate::NeverCopy).
    pub fn copy<Z>(self, copy: Z) -> HttpCallLayer<C, Z, K, R, P> {
        self.with_core(|core| core.copy(copy))
    }

    /// Which dependency a request goes to, each of which has a budget and an estimate of its own: its
    /// [`Authority`] by default. For a stack that serves one,
    /// [`OneDependency`](crate::OneDependency) costs no look-up.
    pub fn key<L: Clone>(self, key: L) -> HttpCallLayer<C, Y, L, R, P> {
        self.with_core(|core| core.key(key))
    }

    /// Which requests may be sent again: [`ByMethod`] by default. In place of it, and of what the
    /// policy says of unsafe methods.
    pub fn repeatable<Q>(self, repeatable: Q) -> HttpCallLayer<C, Y, K, Q, P> {
        self.with_core(|core| core.repeatable(repeatable))
    }

    /// What counts as progress in a body: any byte by default. Each body gets a clone of it. See
    /// [`ProgressBoundLayer::progress_when`].
    pub fn progress_when<Q: Progress + Clone>(self, predicate: Q) -> HttpCallLayer<C, Y, K, R, Q> {
        HttpCallLayer {
            core: self.core,
            propagate: self.propagate,
            buffer: self.buffer,
            progress: self.progress.progress_when(predicate),
        }
    }

    /// A budget that this stack shares with others, in place of one with the numbers of the policy.
    pub fn budget(self, budget: RetryBudget) -> Self {
        self.with_core(|core| core.budget(budget))
    }

    /// Tells `listener` of every event of the stack, once each. May be called several times.
    pub fn on_event(self, listener: impl Listener + 'static) -> Self {
        let mut told = self.with_core(|core| core.on_event(listener));
        let listeners = &told.core.listeners;
        told.propagate = told.propagate.told_to(listeners);
        told.buffer = told.buffer.told_to(listeners);
        told.progress = told.progress.told_to(listeners);
        told
    }

    /// A handle that reads what was measured; `None` where the policy has no measured ceiling.
    #[must_use]
    pub fn measured(&self) -> Option<Measured> {
        self.core.measured()
    }

    pub(super) fn core(&self) -> &CallLayer<C, Y, K, R> {
        &self.core
    }

    /// The policy whose numbers these are.
    pub fn policy(&self) -> CallPolicy {
        self.core.policy()
    }
}

impl<C, Y, K, R, P> fmt::Debug for HttpCallLayer<C, Y, K, R, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpCallLayer")
            .field("policy", &self.core.policy)
            .finish_non_exhaustive()
    }
}

impl<S, C, Y, K, R, P> Layer<S> for HttpCallLayer<C, Y, K, R, P>
where
    C: Clone,
    Y: Clone,
    K: Clone,
    R: Clone,
    P: Clone,
{
    type Service = HttpCall<S, C, Y, K, R, P>;

    fn layer(&self, inner: S) -> Self::Service {
        let core = &self.core;
        let attempt = self.buffer.layer(self.progress.layer(inner));
        let attempt = core.attempt.layer(self.propagate.layer(attempt));
        let call = core.readiness.layer(core.retry.layer(attempt));
        HttpCall {
            stack: core.deadline.layer(call),
            idle: core.idle,
        }
    }
}
