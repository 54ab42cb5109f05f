//! Servers that listen to how long their callers wait: a router of axum's, and a service of hyper's.

use std::future::{Future, pending};

use axum::Router;
use axum::routing::get as getting;
use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};
use tower_deadline::{Answer, BoxError, CallPolicy, InheritLayer, call};

use crate::support::{
    Counter, LONG, Task, client, client_of, ended, eventually, get, ms, text, uri,
};

/// Counts its drop.
struct Running(Counter);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.counting()(());
    }
}

/// Begins, and never ends by itself.
#[derive(Clone, Default)]
struct Work {
    begun: Counter,
    gone: Counter,
}

impl Work {
    fn run(&self) -> impl Future<Output = &'static str> + Send + use<> {
        self.begun.counting()(());
        let running = Running(self.gone.clone());
        async move {
            let _running = running;
            pending().await
        }
    }
}

async fn axum_serving(router: Router) -> (Uri, Task) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = uri(listener.local_addr().unwrap());
    let task = Task::spawn(async move {
        axum::serve(listener, router).await.unwrap();
    });
    (here, task)
}

/// The same work behind a plain service of hyper's.
async fn hyper_serving(layer: InheritLayer, work: Work) -> (Uri, Task) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = uri(listener.local_addr().unwrap());
    let service = layer.layer(service_fn(move |_: Request<hyper::body::Incoming>| {
        let work = work.run();
        async move { Ok::<_, std::io::Error>(Response::new(Full::<Bytes>::from(work.await))) }
    }));
    let task = Task::spawn(async move {
        let mut connections = Vec::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = TowerToHyperService::new(service.clone());
            connections.push(Task::spawn(async move {
                let server = auto::Builder::new(TokioExecutor::new());
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            }));
        }
    });
    (here, task)
}

fn within(here: Uri, left: &'static str) -> Request<Full<Bytes>> {
    let mut request = get(here);
    let left = http::HeaderValue::from_static(left);
    request.headers_mut().insert("x-deadline-ms", left);
    request
}

#[tokio::test]
async fn a_handler_is_dropped_when_its_callers_time_is_over_and_the_caller_hears_504() {
    let enforcing = InheritLayer::new().enforce(true);
    let (axums, hypers) = (Work::default(), Work::default());
    let work = axums.clone();
    let router = Router::new().route("/", getting(move || work.run()));
    let (axum_here, _axum) = axum_serving(router.layer(enforcing.clone())).await;
    let (hyper_here, _hyper) = hyper_serving(enforcing, hypers.clone()).await;
    for (here, work) in [(axum_here, axums), (hyper_here, hypers)] {
        let answer = ended(client().request(within(here.clone(), "60")))
            .await
            .unwrap();
        assert_eq!(answer.status(), 504);
        assert_eq!(answer.headers()["content-type"], "application/problem+json");
        let body: serde_json::Value =
            serde_json::from_str(&text(answer.into_body()).await).unwrap();
        assert_eq!(body["status"], 504);
        assert_eq!((work.begun.count(), work.gone.count()), (1, 1));
        // One that is over on arrival is not begun.
        let answer = ended(client().request(within(here, "0"))).await.unwrap();
        assert_eq!((answer.status().as_u16(), work.begun.count()), (504, 1));
    }
}

#[tokio::test]
async fn the_second_in_a_queue_of_one_is_answered_in_its_time_and_never_run() {
    let work = Work::default();
    let runs = work.clone();
    let router = Router::new().route("/", getting(move || runs.run()));
    let queue = ServiceBuilder::new()
        .layer(InheritLayer::new().enforce(true))
        .layer(GlobalConcurrencyLimitLayer::new(1)); // axum makes the others anew for each connection
    let (here, _server) = axum_serving(router.layer(queue)).await;
    let clients = client();
    let first = clients.request(within(here.clone(), "20000"));
    let first = Task::spawn(async move {
        let _ = first.await;
    });
    eventually("the first is at work", || work.begun.count() == 1).await;
    let answer = ended(clients.request(within(here, "100"))).await.unwrap();
    assert_eq!((answer.status().as_u16(), work.begun.count()), (504, 1));
    drop(first);
}

#[tokio::test]
async fn a_caller_that_leaves_ends_the_work_of_every_hop() {
    let policy = CallPolicy::http()
        .deadline(LONG)
        .inherit(true)
        .propagate_deadline(true);
    let work = Work::default();
    let runs = work.clone();
    let edges = Counter::default();
    let router = Router::new().route("/", getting(move || runs.run()));
    let (bottom, _bottom) = axum_serving(router.layer(InheritLayer::new())).await;
    let stack = policy.layer().layer(client_of::<Full<Bytes>>());
    let passes = edges.clone();
    let router = Router::new().route(
        "/",
        getting(move || {
            let (stack, bottom, passes) = (stack.clone(), bottom.clone(), passes.clone());
            async move {
                assert!(call::remaining().unwrap() < LONG);
                passes.counting()(());
                let answer = stack.oneshot(get(bottom)).await?;
                Ok::<_, Answer>(answer.status())
            }
        }),
    );
    let (edge, _edge) = axum_serving(router.layer(InheritLayer::new())).await;
    let stack = policy.layer().layer(client_of::<Full<Bytes>>());
    let caller = Task::spawn(async move {
        let _: Result<_, BoxError> = stack.oneshot(get(edge)).await;
    });
    eventually("the last hop is at work", || work.begun.count() == 1).await;
    assert_eq!((edges.count(), work.gone.count()), (1, 0));
    drop(caller);
    eventually("it has stopped", || work.gone.count() == 1).await;
    // Without its caller asking again.
    tokio::time::sleep(ms(50)).await;
    assert_eq!(work.begun.count(), 1);
}
