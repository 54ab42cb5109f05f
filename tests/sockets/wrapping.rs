//! The timeout of an attempt, recognised through what stands between the layers.

use http::{Request, Response};
use tower::buffer::BufferLayer;
use tower::{ServiceBuilder, ServiceExt};
use tower_deadline::{
    AttemptTimeoutLayer, Backoff, BoxError, DeadlineLayer, EventKind, RetryLayer, Verdict,
};

use crate::support::{Body, Connection, LONG, RawServer, Recorder, answer, client, get, ms, text};

/// Silent to the first request, and prompt with the others.
async fn silent_first(mut connection: Connection) {
    while let Some(number) = connection.request().await {
        if number == 1 {
            connection.silence().await;
        } else {
            connection.write(answer("200 OK", "good")).await;
        }
    }
}

/// What others wrap errors in.
#[derive(Debug)]
struct Wrapped(BoxError);

impl std::fmt::Display for Wrapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("wrapped")
    }
}

impl std::error::Error for Wrapped {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.0)
    }
}

type Answered = Response<hyper::body::Incoming>;

/// Makes a call whose first attempt times out beneath what `$between` puts between the layers.
macro_rules! attempt_timeout_through {
    ($name:ident, |$builder:ident| $between:expr) => {
        #[tokio::test]
        async fn $name() {
            let server = RawServer::start(silent_first).await;
            let recorder = Recorder::default();
            let $builder = ServiceBuilder::new().layer(DeadlineLayer::new(LONG)).layer(
                RetryLayer::http()
                    .backoff(Backoff::none())
                    .on_event(recorder.listener()),
            );
            let stack = $between
                .layer(AttemptTimeoutLayer::http(ms(400)))
                .service(client());

            let response = stack.oneshot(get(server.uri())).await.unwrap();
            assert_eq!(text(response.into_body()).await, "good");
            assert_eq!(server.requests().len(), 2);
            let attempts = recorder.of(EventKind::Attempt);
            assert_eq!(attempts[0].verdict, Some(Verdict::Transient));
            assert!(attempts[0].timeout && !attempts[1].timeout);
            assert_eq!(attempts[1].attempt, 2);
        }
    };
}

attempt_timeout_through!(an_attempt_timeout_is_recognised_through_a_buffer, |stack| {
    stack.layer(BufferLayer::<Request<Body>>::new(4))
});

attempt_timeout_through!(
    an_attempt_timeout_is_recognised_through_a_mapped_error,
    |stack| stack.map_err(Into::<BoxError>::into)
);

attempt_timeout_through!(
    an_attempt_timeout_is_recognised_inside_another_error,
    |stack| stack.map_err(Wrapped)
);

attempt_timeout_through!(
    an_attempt_timeout_is_recognised_inside_an_io_error,
    |stack| stack.map_err(std::io::Error::other)
);

attempt_timeout_through!(
    an_attempt_timeout_is_recognised_through_a_boxed_service,
    |stack| {
        stack.layer(tower::layer::layer_fn(|inner| {
            tower::util::BoxCloneService::<Request<Body>, Answered, BoxError>::new(inner)
        }))
    }
);
