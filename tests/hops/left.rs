//! Futures of the hop's layers, left anywhere, polled after their end, and readied in every way.

use std::pin::pin;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderValue, Response};
use http_body_util::Full;
use tokio::time::advance;
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_deadline::{
    AnswerErrorsLayer, AttemptTimeoutLayer, BoxError, CallPolicy, Criticality, DeadlineLayer,
    InheritLayer, PropagateLayer, call,
};

use crate::support::*;

macro_rules! each {
    ($check:ident) => {
        $check!(PropagateLayer::new());
        $check!(PropagateLayer::grpc());
        $check!(InheritLayer::new());
        $check!(InheritLayer::new().enforce(true).reject_expired(true));
        $check!(AnswerErrorsLayer::new());
        $check!(CallPolicy::grpc().bound_readiness(true).grpc_layer());
        $check!(CallPolicy::http().propagate_criticality(true).layer());
        $check!(
            ServiceBuilder::new()
                .layer(InheritLayer::new().enforce(true))
                .layer(DeadlineLayer::new(ms(300)).inherit(true))
                .layer(AttemptTimeoutLayer::http(ms(60)))
                .layer(PropagateLayer::new())
                .into_inner()
        );
    };
}

fn within(left: &'static str) -> Req {
    let mut request = get();
    let headers = request.headers_mut();
    headers.insert("x-deadline-ms", HeaderValue::from_static(left));
    request
}

#[tokio::test(start_paused = true)]
async fn the_instance_that_was_readied_is_the_one_that_is_called() {
    macro_rules! check {
        ($layer:expr) => {
            let (service, shared) = Scripted::always(|| Reply::after(ms(1), 200));
            shared
                .readiness
                .lock()
                .unwrap()
                .extend((0..9).map(|_| Ok(ms(10))));
            let stack = $layer.layer(service);
            let mut again = stack.clone();
            for _ in 0..2 {
                let response = again.ready().await.unwrap().call(get()).await;
                assert_eq!(response.unwrap().status(), 200);
            }
            assert_eq!(stack.oneshot(get()).await.unwrap().status(), 200);
            assert_eq!(shared.calls(), 3);
            shared.check();
        };
    }
    each!(check);
}

#[tokio::test(start_paused = true)]
async fn left_after_any_number_of_polls_everything_is_given_back() {
    macro_rules! check {
        ($layer:expr) => {
            for polls in 0..16 {
                let (service, shared) = Scripted::always(|| Reply::after(ms(25), 200));
                shared
                    .readiness
                    .lock()
                    .unwrap()
                    .extend((0..9).map(|_| Ok(ms(25))));
                let mut limited = ConcurrencyLimitLayer::new(1).layer(service);
                let mut stack = $layer.layer(limited.clone());
                {
                    let mut call = pin!(stack.ready().await.unwrap().call(within("70")));
                    for _ in 0..polls {
                        if futures_util::poll!(call.as_mut()).is_ready() {
                            // Once more: no panic.
                            let _ = futures_util::poll!(call.as_mut());
                            break;
                        }
                        advance(ms(10)).await;
                    }
                }
                drop(stack);
                assert_eq!(shared.live(), 0);
                shared.check();
                shared.readiness.lock().unwrap().clear();
                let free = futures_util::poll!(pin!(limited.ready())).is_ready();
                assert!(free, "{polls} polls");
            }
        };
    }
    each!(check);
}

#[tokio::test(start_paused = true)]
async fn what_is_dropped_is_dropped_under_what_was_inherited() {
    struct Saying(Arc<Mutex<Vec<Criticality>>>);
    impl Drop for Saying {
        fn drop(&mut self) {
            self.0.lock().unwrap().push(call::criticality());
        }
    }
    let said = Arc::new(Mutex::new(Vec::new()));
    let says = Arc::clone(&said);
    let handler = service_fn(move |_: Req| {
        let saying = Saying(Arc::clone(&says));
        async move {
            let _saying = saying;
            std::future::pending::<()>().await;
            Ok::<_, BoxError>(Response::new(Full::<Bytes>::default()))
        }
    });
    let server = InheritLayer::new().enforce(true).layer(handler);
    let request = || {
        let mut request = within("50");
        let label = HeaderValue::from_static("Sheddable");
        request.headers_mut().insert("x-criticality", label);
        request
    };
    // Without a server.
    let saying = Saying(Arc::clone(&said));
    drop(call::with_criticality(Criticality::Sheddable, async move {
        let _saying = saying;
    }));
    assert_eq!(said.lock().unwrap().pop(), Some(Criticality::Sheddable));
    // Cut by the clock, and left by the caller.
    assert_eq!(
        server.clone().oneshot(request()).await.unwrap().status(),
        504
    );
    let _ = futures_util::poll!(pin!(server.oneshot(request())));
    assert_eq!(*said.lock().unwrap(), [Criticality::Sheddable; 2]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_there_at_the_deadline_is_returned_however_late() {
    let (service, _) = Scripted::always(|| Reply::after(ms(50), 200));
    let server = InheritLayer::new().enforce(true).layer(service);
    let mut call = pin!(server.oneshot(within("60")));
    assert!(futures_util::poll!(call.as_mut()).is_pending());
    advance(ms(500)).await;
    assert_eq!(call.await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn an_order_that_is_odd_is_harmless() {
    // Above the retry, all attempts have the one value; twice, the smaller stays.
    let (service, shared) = Scripted::always(|| Reply::status(503));
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(secs(5)))
        .layer(PropagateLayer::new())
        .layer(
            tower_deadline::RetryLayer::http().backoff(tower_deadline::Backoff::constant(secs(1))),
        )
        .layer(AttemptTimeoutLayer::http(secs(4)))
        .layer(PropagateLayer::new())
        .service(service);
    stack.oneshot(get()).await.unwrap();
    let sent: Vec<_> = shared
        .received
        .lock()
        .unwrap()
        .iter()
        .map(|(_, r)| r.headers()["x-deadline-ms"].to_str().unwrap().to_owned())
        .collect();
    assert_eq!(sent, ["4000", "4000", "3000"]);
}
