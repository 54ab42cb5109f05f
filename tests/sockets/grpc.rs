//! Calls of gRPC: tonic's servers and channels, and clients that know nothing of tonic.

use std::error::Error;
use std::future::pending;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::{Stream, StreamExt, stream};
use http::Response;
use tokio::time::{Instant, sleep};
use tonic::transport::Channel;
use tonic::{Code, Status};
use tower::layer::util::Identity;
use tower::{ServiceBuilder, ServiceExt};
use tower_deadline::policy::CallBody;
use tower_deadline::{
    Answer, AnswerErrorsLayer, AttemptStalled, Backoff, BoxError, CallOverride, CallPolicy,
    DeadlineExceeded, EventKind, InheritLayer, Inherited, NeverCopy, StopReason, Verdict, call,
};

use crate::grpc_support::{
    Handlers, Plain, Told, by_hand, channel, framed, method, serve, streaming, unary,
};
use crate::support::{
    Counter, LONG, Recorder, Refusing, Task, client_http2, ended, eventually, get, ms, uri,
};

/// A server that never answers, and what became of its handlers.
async fn hanging(layer: impl Into<Option<InheritLayer>>) -> (SocketAddr, Handlers, Task) {
    let handlers = Handlers::default();
    let seen = handlers.clone();
    let handler = unary(move |_| {
        let running = seen.begin();
        async move {
            let _running = running;
            pending().await
        }
    });
    let (address, task) = match layer.into() {
        Some(layer) => serve(layer, handler).await,
        None => serve(Identity::new(), handler).await,
    };
    (address, handlers, task)
}

/// A server whose n-th call, counted from 1, is answered by `answer`.
async fn scripted(
    answer: fn(usize) -> Result<&'static str, Status>,
) -> (SocketAddr, Counter, Task) {
    let calls = Counter::default();
    let count = calls.clone();
    let handler = unary(move |_| {
        count.counting()(());
        let answer = answer(count.count()).map(Bytes::from);
        async move { answer }
    });
    let (address, task) = serve(Identity::new(), handler).await;
    (address, calls, task)
}

/// What a client is told that sends these headers and keeps no time itself.
async fn asked(address: SocketAddr, headers: &[(&str, &str)]) -> Told {
    let request = by_hand(address, headers);
    Told::by(ended(client_http2().request(request)).await.unwrap()).await
}

// The server.

#[tokio::test]
async fn a_caller_hears_that_its_deadline_passed_and_never_that_it_was_cancelled() {
    let (address, handlers, _server) = hanging(InheritLayer::new().enforce(true)).await;
    let client = client_http2();
    let calls = (0..20).map(|_| {
        let call = client.request(by_hand(address, &[("grpc-timeout", "60m")]));
        async move {
            let begun = Instant::now();
            let told = Told::by(ended(call).await.unwrap()).await;
            assert_eq!(told.code(), Code::DeadlineExceeded, "{told:?}");
            assert!(Instant::now() - begun >= ms(55));
        }
    });
    join_all(calls).await;
    eventually("every handler is dropped", || {
        handlers.gone() == handlers.begun()
    })
    .await;
}

#[tokio::test]
async fn the_handler_is_dropped_at_the_deadline_while_its_caller_still_listens() {
    let (address, handlers, _server) = hanging(InheritLayer::new().enforce(true)).await;
    let told = asked(address, &[("grpc-timeout", "300m")]).await;
    assert_eq!(told.code(), Code::DeadlineExceeded);
    assert!(told.body.is_empty());
    // By the time that the answer is here: it was not dropped because the connection went.
    assert_eq!((handlers.begun(), handlers.gone()), (1, 1));
}

/// What the layer is there to prevent.
#[tokio::test]
async fn a_server_of_tonics_says_cancelled_without_the_layer() {
    let (address, _, _server) = hanging(None).await;
    let told = asked(address, &[("grpc-timeout", "60m")]).await;
    assert_eq!(told.code(), Code::Cancelled);
}

#[tokio::test]
async fn a_call_that_is_over_on_arrival_is_not_run() {
    let (address, handlers, _server) = hanging(InheritLayer::new().reject_expired(true)).await;
    // The second leaves nothing but what is kept back to answer.
    for over in ["1n", "5m"] {
        let told = asked(address, &[("grpc-timeout", over)]).await;
        assert_eq!(told.code(), Code::DeadlineExceeded, "{over}");
    }
    assert_eq!(handlers.begun(), 0);
}

#[tokio::test]
async fn a_malformed_timeout_is_ignored_or_refused_by_choice() {
    let shown = || unary(|_| async { Ok(format!("{:?}", call::remaining()).into()) });
    let recorder = Recorder::default();
    let lenient = InheritLayer::new().on_event(recorder.listener());
    let strict = InheritLayer::new().reject_malformed(true);
    let (lenient, _lenient) = serve(lenient, shown()).await;
    let (strict, _strict) = serve(strict, shown()).await;
    for malformed in ["10x", "123456789m", "-5S", "5", "", "1S1m"] {
        let headers = [("grpc-timeout", malformed)];
        let told = asked(lenient, &headers).await;
        assert_eq!(told.code(), Code::Ok, "{malformed:?}");
        assert_eq!(told.body, framed("None"), "{malformed:?}");

        let told = asked(strict, &headers).await;
        assert_eq!(told.code(), Code::InvalidArgument, "{malformed:?}");
    }
    assert_eq!(recorder.of(EventKind::HeaderIgnored).len(), 6);
    assert_eq!(
        asked(strict, &[("grpc-timeout", "10S")]).await.code(),
        Code::Ok
    );
}

/// To the specification 0 is no timeout, and to a server of tonic's it is one that is over: the layer
/// beneath has no say unless it refuses it at once.
#[tokio::test]
async fn a_timeout_of_zero_is_malformed_and_a_server_of_tonics_takes_it_for_over() {
    let strict = InheritLayer::new().reject_malformed(true);
    for (layer, expected) in [
        (InheritLayer::new(), Code::Cancelled),
        (strict, Code::InvalidArgument),
    ] {
        let (address, _, _server) = hanging(layer).await;
        let told = asked(address, &[("grpc-timeout", "0m")]).await;
        assert_eq!(told.code(), expected);
    }
}

#[tokio::test]
async fn the_deadline_arrives_at_the_handler() {
    let handler = unary(|request: tonic::Request<Bytes>| async move {
        let left = call::remaining().unwrap();
        let inherited = request.extensions().get::<Inherited>().unwrap();
        assert!(inherited.remaining().unwrap() <= left);
        Ok(left.as_millis().to_string().into())
    });
    let (address, _server) = serve(InheritLayer::new(), handler).await;

    let told = asked(address, &[("grpc-timeout", "10S")]).await;
    assert_eq!(told.code(), Code::Ok);
    let left: u64 = std::str::from_utf8(&told.body[5..])
        .unwrap()
        .parse()
        .unwrap();
    assert!((1..=9995).contains(&left), "{left}");

    // From a client with a policy: its own deadline, which nobody wrote out.
    let policy = CallPolicy::grpc().deadline(LONG).no_attempt_timeout();
    let left = by_status(&policy, address).unary().await.unwrap();
    let left: u128 = std::str::from_utf8(&left).unwrap().parse().unwrap();
    assert!(left > 0 && left <= LONG.as_millis() - 5, "{left}");
}

/// A policy's stack around a channel of tonic's.
struct Stack<S>(tonic::client::Grpc<S>);

impl<S, B> Stack<S>
where
    S: tower::Service<http::Request<tonic::body::Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: http_body::Body<Error: Into<BoxError>> + Send + 'static,
{
    async fn unary(mut self) -> Result<Bytes, Status> {
        self.0.ready().await.map_err(Into::into).unwrap();
        let request = tonic::Request::new(Bytes::from("ask"));
        let answer = ended(self.0.unary(request, method(), Plain)).await?;
        Ok(answer.into_inner())
    }

    async fn streaming(mut self) -> Result<tonic::Streaming<Bytes>, Status> {
        self.0.ready().await.map_err(Into::into).unwrap();
        let request = tonic::Request::new(Bytes::from("ask"));
        let answer = ended(self.0.server_streaming(request, method(), Plain)).await?;
        Ok(answer.into_inner())
    }
}

/// Its errors are statuses, with their causes.
fn by_status(
    policy: &CallPolicy,
    address: SocketAddr,
) -> Stack<
    impl tower::Service<
        http::Request<tonic::body::Body>,
        Response = Response<CallBody<tonic::body::Body>>,
        Error = Status,
    >,
> {
    let stack = ServiceBuilder::new()
        .map_err(Answer::tonic_status)
        .layer(policy.grpc_layer().copy(NeverCopy))
        .service(channel(address));
    Stack(tonic::client::Grpc::new(stack))
}

// The client.

#[tokio::test]
async fn a_client_of_tonics_hears_that_the_deadline_passed_and_why() {
    let (address, _, _server) = hanging(None).await;
    let policy = CallPolicy::grpc().deadline(ms(150));
    for streams in [false, true] {
        let begun = Instant::now();
        let stack = by_status(&policy, address);
        let status = if streams {
            stack.streaming().await.err()
        } else {
            stack.unary().await.err()
        };
        let status = status.unwrap();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
        let exceeded = DeadlineExceeded::find(&status as &(dyn Error + 'static)).unwrap();
        assert_eq!(exceeded.deadline(), ms(150));
        assert!(Instant::now() - begun >= ms(150));
    }
}

#[tokio::test]
async fn errors_that_are_answered_reach_a_client_of_tonics_as_statuses_too() {
    let (address, _, _server) = hanging(None).await;
    let policy = CallPolicy::grpc().deadline(ms(150));
    for streams in [false, true] {
        let stack = ServiceBuilder::new()
            .layer(AnswerErrorsLayer::new())
            .layer(policy.grpc_layer().copy(NeverCopy))
            .service(channel(address));
        let stack = Stack(tonic::client::Grpc::new(stack));
        let status = if streams {
            stack.streaming().await.err()
        } else {
            stack.unary().await.err()
        };
        assert_eq!(status.unwrap().code(), Code::DeadlineExceeded);
    }
}

/// Every number of the policy, against a server that has the same clock and says "cancelled": it is one
/// timeout, and ours.
#[tokio::test]
async fn an_attempt_that_the_peer_ends_is_one_that_timed_out() {
    let (address, handlers, _server) = hanging(None).await;
    let recorder = Recorder::default();
    let policy = AT_ONCE.attempt_timeout(ms(250));
    let layer = policy.grpc_layer().on_event(recorder.listener());
    let stack = ServiceBuilder::new().layer(layer).service(client_http2());
    let error = ended(stack.oneshot(by_hand(address, &[]))).await.err();
    let error = error.unwrap();
    assert!(tower_deadline::is_timeout(&error), "{error}");
    assert_eq!(handlers.begun(), 3);
    for attempt in recorder.of(EventKind::Attempt) {
        assert_eq!(attempt.verdict, Some(Verdict::Transient));
        assert!(attempt.timeout);
    }
    assert_eq!(recorder.terminal().kind, EventKind::Exhausted);
}

// A server that calls another.

#[tokio::test]
async fn the_error_of_a_call_that_a_handler_made_reaches_its_caller_as_a_status() {
    let (slow, _, _slow) = hanging(None).await;
    let slow = move |_| async move {
        let policy = CallPolicy::grpc().deadline(ms(100));
        let stack = ServiceBuilder::new()
            .layer(policy.grpc_layer())
            .service(client_http2());
        match stack.oneshot(by_hand(slow, &[])).await {
            Ok(_) => Ok(Bytes::new()),
            Err(error) => Err(Status::from(Answer::from(error))),
        }
    };
    let (address, _server) = serve(Identity::new(), unary(slow)).await;
    let told = asked(address, &[]).await;
    assert_eq!(told.code(), Code::DeadlineExceeded);
    assert!(!told.fields.contains_key("grpc-retry-pushback-ms"));

    // Nobody is there, and the budget allows of one retry.
    let refusing = Refusing::new();
    let gone = refusing.address;
    let gone = move |_| async move {
        let policy = CallPolicy::grpc()
            .attempts(5)
            .backoff(Backoff::none())
            .budget(0.1, 0);
        let stack = ServiceBuilder::new()
            .layer(policy.grpc_layer())
            .service(client_http2());
        match stack.oneshot(get(uri(gone))).await {
            Ok(_) => Ok(Bytes::new()),
            Err(error) => Err(Status::from(Answer::from(error))),
        }
    };
    let (address, _server) = serve(Identity::new(), unary(gone)).await;
    let told = asked(address, &[]).await;
    assert_eq!(told.code(), Code::Unavailable);
    let wait = told.fields["grpc-retry-pushback-ms"].to_str().unwrap();
    assert!(wait.parse::<u64>().unwrap() >= 1000, "{wait}");
}

// Retries.

/// The answer to a call by hand through a policy's stack, and the events of it.
async fn called(
    policy: &CallPolicy,
    address: SocketAddr,
    overrides: Option<CallOverride>,
) -> (Told, Recorder) {
    let recorder = Recorder::default();
    let layer = policy.grpc_layer().on_event(recorder.listener());
    let stack = ServiceBuilder::new().layer(layer).service(client_http2());
    let mut request = by_hand(address, &[]);
    if let Some(overrides) = overrides {
        request.extensions_mut().insert(overrides);
    }
    let response = ended(stack.oneshot(request)).await.unwrap();
    (Told::by(response).await, recorder)
}

const AT_ONCE: CallPolicy = CallPolicy::grpc().deadline(LONG).backoff(Backoff::none());

fn pushing_back(wait: &'static str) -> Status {
    let mut status = Status::unavailable("busy");
    let wait = tonic::metadata::MetadataValue::from_static(wait);
    status.metadata_mut().insert("grpc-retry-pushback-ms", wait);
    status
}

#[tokio::test]
async fn a_post_that_was_unavailable_is_sent_again() {
    let (address, calls, _server) = scripted(|n| match n {
        1 | 2 => Err(Status::unavailable("not yet")),
        _ => Ok("there"),
    })
    .await;
    let (told, recorder) = called(&AT_ONCE, address, None).await;
    assert_eq!(told.code(), Code::Ok);
    assert_eq!(told.body, framed("there"));
    assert_eq!(calls.count(), 3);
    let statuses = recorder.of(EventKind::Attempt);
    let statuses: Vec<_> = statuses.iter().map(|heard| heard.status).collect();
    assert_eq!(statuses, [Some(14), Some(14), None]);
}

#[tokio::test]
async fn a_method_that_is_not_to_be_called_twice_opts_out() {
    let (address, calls, _server) = scripted(|_| Err(Status::unavailable("not yet"))).await;
    let once = CallOverride::new().no_retry();
    let (told, recorder) = called(&AT_ONCE, address, Some(once)).await;
    assert_eq!(told.code(), Code::Unavailable);
    assert_eq!(calls.count(), 1);
    assert_eq!(recorder.terminal().stop, Some(StopReason::NotRepeatable));
}

#[tokio::test]
async fn what_is_exhausted_is_throttled_and_what_is_wrong_is_not_sent_again() {
    let (address, calls, _server) = scripted(|n| match n {
        1 => Err(Status::resource_exhausted("slow down")),
        _ => Err(Status::invalid_argument("wrong")),
    })
    .await;
    let (told, recorder) = called(&AT_ONCE, address, None).await;
    assert_eq!(told.code(), Code::InvalidArgument);
    assert_eq!(calls.count(), 2);
    let attempts = recorder.of(EventKind::Attempt);
    assert_eq!(attempts[0].verdict, Some(Verdict::Throttled));
    assert_eq!(attempts[1].verdict, Some(Verdict::Ok));
}

#[tokio::test]
async fn a_server_is_given_the_time_that_it_asks_for() {
    let (address, calls, _server) = scripted(|n| match n {
        1 => Err(pushing_back("20")),
        _ => Ok("there"),
    })
    .await;
    let begun = Instant::now();
    let (told, recorder) = called(&AT_ONCE, address, None).await;
    assert_eq!(told.code(), Code::Ok);
    assert!(Instant::now() - begun >= ms(20));
    assert_eq!(calls.count(), 2);
    let retrying = recorder.of(EventKind::Retrying);
    assert!(retrying[0].delay.unwrap() >= ms(20));
}

#[tokio::test]
async fn a_server_that_says_not_again_is_not_asked_again() {
    let (address, calls, _server) = scripted(|_| Err(pushing_back("-1"))).await;
    let (told, recorder) = called(&AT_ONCE, address, None).await;
    assert_eq!(told.code(), Code::Unavailable);
    assert_eq!(told.fields["grpc-retry-pushback-ms"], "-1");
    assert_eq!(calls.count(), 1);
    let stop = recorder.terminal().stop;
    assert_eq!(stop, Some(StopReason::RetryAfterTooLong));
}

// Bodies.

/// A message, and then the status in the trailers: "unavailable" the first time.
fn unavailable_at_the_end(calls: &Counter) -> impl Fn() -> Messages + Clone + use<> {
    let calls = calls.clone();
    move || {
        calls.counting()(());
        let message = Ok(Bytes::from(format!("message {}", calls.count())));
        let failed = (calls.count() == 1).then(|| Err(Status::unavailable("at the end")));
        stream::iter([message].into_iter().chain(failed)).boxed()
    }
}

type Messages = stream::BoxStream<'static, Result<Bytes, Status>>;

#[tokio::test]
async fn a_status_in_the_trailers_is_seen_where_responses_are_buffered() {
    let calls = Counter::default();
    let handler = streaming(unavailable_at_the_end(&calls));
    let (address, _server) = serve(Identity::new(), handler).await;
    let (told, recorder) = called(&AT_ONCE.buffer_responses(1 << 16), address, None).await;
    assert_eq!(told.code(), Code::Ok);
    assert_eq!(told.body, framed("message 2"));
    assert_eq!(calls.count(), 2);
    let statuses = recorder.of(EventKind::Attempt);
    let statuses: Vec<_> = statuses.iter().map(|heard| heard.status).collect();
    assert_eq!(statuses, [Some(14), Some(0)]);
}

#[tokio::test]
async fn a_status_in_the_trailers_is_the_callers_where_they_are_not() {
    let calls = Counter::default();
    let handler = streaming(unavailable_at_the_end(&calls));
    let (address, _server) = serve(Identity::new(), handler).await;
    let (told, recorder) = called(&AT_ONCE, address, None).await;
    assert_eq!(told.code(), Code::Unavailable);
    assert_eq!(told.body, framed("message 1"));
    assert_eq!(calls.count(), 1);
    assert_eq!(recorder.terminal().kind, EventKind::Succeeded);
}

fn every(gap: Duration, count: usize) -> impl Stream<Item = Result<Bytes, Status>> {
    stream::iter(0..count).then(move |n| async move {
        sleep(gap).await;
        Ok(Bytes::from(n.to_string()))
    })
}

#[tokio::test]
async fn a_stream_that_moves_goes_on_after_the_deadline() {
    let (address, _server) = serve(Identity::new(), streaming(|| every(ms(40), 20))).await;
    let policy = CallPolicy::grpc()
        .deadline(ms(500))
        .attempt_timeout(ms(499));
    let begun = Instant::now();
    let mut messages = by_status(&policy, address).streaming().await.unwrap();
    let mut read = 0;
    while let Some(message) = ended(messages.message()).await.unwrap() {
        assert_eq!(message, read.to_string());
        read += 1;
    }
    assert_eq!(read, 20);
    assert!(Instant::now() - begun > ms(500));
}

#[tokio::test]
async fn a_stream_that_stalls_is_ended_and_says_so() {
    let two = || every(ms(1), 2).chain(stream::pending());
    let (address, _server) = serve(Identity::new(), streaming(two)).await;
    let policy = CallPolicy::grpc().deadline(LONG).attempt_timeout(ms(400));
    let mut messages = by_status(&policy, address).streaming().await.unwrap();
    for _ in 0..2 {
        assert!(ended(messages.message()).await.unwrap().is_some());
    }
    let status = ended(messages.message()).await.unwrap_err();
    let stalled = AttemptStalled::find(&status as &(dyn Error + 'static)).unwrap();
    assert_eq!(stalled.gap(), ms(400));
    assert_eq!(status.code(), Code::Unknown);
}

/// The types hold together: a stack of tonic's own kind is `Clone` and may be sent.
#[tokio::test]
async fn a_stack_around_a_channel_is_kept_and_shared() {
    fn shared<T: Clone + Send + Sync + 'static>(_: &T) {}
    let channel: Channel = channel("127.0.0.1:1".parse().unwrap());
    let layer = CallPolicy::grpc().grpc_layer().copy(NeverCopy);
    let stack = ServiceBuilder::new()
        .map_err(Answer::tonic_status)
        .layer(layer)
        .service(channel);
    shared(&stack);
    shared(&tonic::client::Grpc::new(stack));
}
