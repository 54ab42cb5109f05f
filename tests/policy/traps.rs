//! Orders of layers that mean something else than they seem to are told of, once.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex};

use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_deadline::{
    AttemptTimeoutLayer, CallPolicy, DeadlineLayer, ProgressBoundLayer, RetryLayer,
};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::support::*;

/// Keeps what is said.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Subscriber for Said {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "tower_deadline"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// What is said while `f` runs, in lines that contain `what`.
fn said(what: &str, f: impl FnOnce()) -> Vec<String> {
    let said = Said::default();
    tracing::subscriber::with_default(said.clone(), f);
    let lines = said.0.lock().unwrap();
    lines.iter().filter(|l| l.contains(what)).cloned().collect()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
}

/// A service of a type of its own, since what is said is said once for each type of stack.
#[derive(Clone)]
struct Own<const N: u32>(Scripted);

impl<const N: u32> Service<Req> for Own<N> {
    type Response = Res;
    type Error = tower_deadline::BoxError;
    type Future = OwnFuture<N>;

    fn poll_ready(
        &mut self,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Req) -> OwnFuture<N> {
        OwnFuture(self.0.call(request))
    }
}

struct OwnFuture<const N: u32>(Live);

impl<const N: u32> std::future::Future for OwnFuture<N> {
    type Output = Result<Res, tower_deadline::BoxError>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        std::pin::Pin::new(&mut self.0).poll(cx)
    }
}

fn ok<const N: u32>() -> Own<N> {
    Own(Scripted::always(|| Reply::after(ms(1), 200)).0)
}

/// Two calls, and a third through a stack that is made anew.
macro_rules! calls {
    ($stack:expr) => {
        || {
            runtime().block_on(async {
                for _ in 0..2 {
                    let mut stack = $stack;
                    for _ in 0..2 {
                        assert!(stack.ready().await.unwrap().call(get()).await.is_ok());
                    }
                }
            })
        }
    };
}

#[test]
fn a_deadline_inside_a_retry_is_told_of_once_with_its_mend() {
    let stack = |inner| {
        ServiceBuilder::new()
            .layer(RetryLayer::http())
            .layer(AttemptTimeoutLayer::http(secs(1)))
            .layer(DeadlineLayer::new(secs(1)))
            .service(inner)
    };
    let lines = said("deadline_inside_retry", calls!(stack(ok::<1>())));
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("WARN"), "{lines:?}");
    assert!(lines[0].contains("put it above"), "{lines:?}");
}

#[test]
fn a_deadline_above_a_retry_is_not_nor_one_that_bounds_nothing() {
    let right = |inner| {
        ServiceBuilder::new()
            .layer(DeadlineLayer::new(secs(1)))
            .layer(RetryLayer::http())
            .layer(DeadlineLayer::unbounded())
            .service(inner)
    };
    assert!(said("trap", calls!(right(ok::<2>()))).is_empty());
    // One attempt is the call.
    let single = |inner| {
        ServiceBuilder::new()
            .layer(RetryLayer::http().attempts(1))
            .layer(DeadlineLayer::new(secs(1)))
            .service(inner)
    };
    assert!(said("trap", calls!(single(ok::<3>()))).is_empty());
}

#[test]
fn a_client_inside_a_handler_is_no_trap() {
    let stack = || {
        let client = CallPolicy::http().layer().layer(ok::<4>());
        RetryLayer::http().layer(tower::service_fn(move |request: Req| {
            let client = client.clone();
            async move { client.oneshot(request).await }
        }))
    };
    assert!(said("trap", calls!(stack())).is_empty());
}

#[test]
fn two_retry_layers_are_told_of_once() {
    let stack = |inner: Own<5>| {
        ServiceBuilder::new()
            .layer(RetryLayer::http())
            .layer(RetryLayer::http())
            .service(inner)
    };
    let lines = said("retry_inside_retry", calls!(stack(ok())));
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("multiplies"), "{lines:?}");
    let deferring = |inner: Own<6>| {
        ServiceBuilder::new()
            .layer(RetryLayer::http())
            .layer(RetryLayer::http().defer_to_caller(true))
            .service(inner)
    };
    assert!(said("trap", calls!(deferring(ok()))).is_empty());
}

#[test]
fn a_retry_inside_an_attempt_timeout_is_told_of_once() {
    let stack = |inner: Own<15>| {
        ServiceBuilder::new()
            .layer(DeadlineLayer::new(secs(1)))
            .layer(AttemptTimeoutLayer::http(secs(1)))
            .layer(RetryLayer::http())
            .service(inner)
    };
    let lines = said("retry_inside_attempt", calls!(stack(ok())));
    assert_eq!(lines.len(), 1, "{lines:?}");
    // One attempt is all there is to bound.
    let single = |inner: Own<16>| {
        ServiceBuilder::new()
            .layer(AttemptTimeoutLayer::http(secs(1)))
            .layer(RetryLayer::http().attempts(1))
            .service(inner)
    };
    assert!(said("trap", calls!(single(ok()))).is_empty());
}

#[test]
fn a_policy_inside_a_retry_is_told_of() {
    let stack = || RetryLayer::http().layer(CallPolicy::http().layer().layer(ok::<7>()));
    let lines = said("trap", calls!(stack()));
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("deadline_inside_retry"), "{lines:?}");
}

#[test]
fn a_progress_bound_without_an_attempt_bound_is_told_of_also_while_the_head_is_awaited() {
    let alone = |inner: Own<8>| ProgressBoundLayer::new(secs(1)).layer(inner);
    let lines = said("progress_without", calls!(alone(ok())));
    assert_eq!(lines.len(), 1, "{lines:?}");
    let beneath = |inner| {
        ServiceBuilder::new()
            .layer(DeadlineLayer::new(secs(1)))
            .layer(AttemptTimeoutLayer::unbounded())
            .layer(ProgressBoundLayer::new(secs(1)))
            .service(inner)
    };
    let lines = said("progress_without", calls!(beneath(ok::<9>())));
    assert_eq!(lines.len(), 1, "{lines:?}");

    let lines = said("progress_without", || {
        runtime().block_on(async {
            let hangs = Own::<10>(Scripted::always(|| Reply::Hang).0);
            let stack = ProgressBoundLayer::new(secs(1)).layer(hangs);
            let call = tokio::time::timeout(secs(5), stack.oneshot(get()));
            assert!(call.await.is_err());
        });
    });
    assert_eq!(lines.len(), 1, "{lines:?}");
}

#[test]
fn a_progress_bound_with_an_attempt_bound_is_not_in_any_way_of_having_one() {
    let alone = |inner| {
        ServiceBuilder::new()
            .layer(AttemptTimeoutLayer::http(secs(1)))
            .layer(ProgressBoundLayer::new(secs(1)))
            .service(inner)
    };
    assert!(said("trap", calls!(alone(ok::<11>()))).is_empty());
    let whole = |inner| {
        ServiceBuilder::new()
            .layer(DeadlineLayer::new(secs(1)))
            .layer(RetryLayer::http())
            .layer(AttemptTimeoutLayer::http(secs(1)))
            .buffer(1)
            .layer(ProgressBoundLayer::new(secs(1)))
            .service(inner)
    };
    // The buffer's worker begins the call, and has no scope.
    assert!(said("trap", calls!(whole(ok::<12>()))).is_empty());
    let policies = [
        CallPolicy::http(),
        CallPolicy::none(),
        CallPolicy::http().no_attempt_timeout(),
    ];
    for policy in policies {
        let stack = |inner| policy.layer().layer(inner);
        assert!(said("trap", calls!(stack(ok::<13>()))).is_empty());
    }
}

#[test]
fn an_unreachable_attempt_timeout_is_warned_of_once_and_a_refused_policy_reported() {
    let odd = CallPolicy::http()
        .deadline(ms(30_001))
        .attempt_timeout(secs(61));
    let make = || {
        for _ in 0..3 {
            let _ = odd.layer();
        }
    };
    let lines = said("61s", make);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("WARN") && lines[0].contains("30.001s"));
    assert!(said("61s", make).is_empty());

    let refused = CallPolicy::http().attempts(0).attempt_timeout(ms(0));
    let lines = said("attempts = 0", || {
        let _ = refused.layer();
        let _ = refused.layer();
    });
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("ERROR"), "{lines:?}");
    assert!(lines[0].contains("attempt_timeout = 0s"), "{lines:?}");

    let fine = CallPolicy::http().deadline(secs(5));
    assert!(said("", || drop(fine.layer())).is_empty());
}

#[test]
fn what_is_about_http_is_reported_where_it_has_no_effect() {
    use tower_deadline::{CloneRequest, ErrorClassifier};
    let lines = said("not HTTP", || {
        let policy = CallPolicy::new()
            .buffer_responses(10)
            .retry_unsafe_methods(true);
        let _ = policy.layer_for(ErrorClassifier, CloneRequest);
        let _ = CallPolicy::new().layer_for(ErrorClassifier, CloneRequest);
    });
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("buffer_responses, retry_unsafe_methods"));
}

#[test]
fn an_override_that_comes_too_late_for_a_policy_of_none_is_told_of() {
    use tower_deadline::{CallOverride, call};
    let lines = said("is not obeyed", || {
        runtime().block_on(async {
            let mut stack = CallPolicy::none().layer().layer(ok::<14>());
            for _ in 0..2 {
                let made = stack.ready().await.unwrap().call(get());
                let late = call::with_override(CallOverride::new().deadline(ms(1)), made);
                assert!(late.await.is_ok());
            }
        });
    });
    assert_eq!(lines.len(), 1, "{lines:?}");
}
