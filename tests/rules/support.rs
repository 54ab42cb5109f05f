//! A scripted service, scripted bodies, a recorder of events.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use tokio::time::{Instant, Sleep, sleep};
use tower::Service;
use tower_deadline::{Attempt, BoxError, Event, EventKind, Listener, StopReason};

pub(crate) type Req = Request<Full<Bytes>>;
pub(crate) type Res = Response<Script>;

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) fn get() -> Req {
    Request::get("http://example.com/")
        .body(Full::default())
        .unwrap()
}

pub(crate) fn post() -> Req {
    Request::post("http://example.com/")
        .body(Full::default())
        .unwrap()
}

pub(crate) fn reset() -> BoxError {
    std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()
}

pub(crate) fn refused() -> BoxError {
    std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into()
}

/// An error that is nobody else's, and has an address.
#[derive(Debug)]
pub(crate) struct Own(pub(crate) u8);

impl std::fmt::Display for Own {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "own {}", self.0)
    }
}

impl std::error::Error for Own {}

/// Measures paused time.
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Milliseconds since the start.
    pub(crate) fn ms(&self) -> u128 {
        Instant::now().duration_since(self.0).as_millis()
    }
}

/// What one attempt gets.
pub(crate) enum Reply {
    /// After so long, a head with this status and these headers, and this body.
    Head(Duration, u16, Vec<(&'static str, &'static str)>, Script),
    /// After so long, an error.
    Error(Duration, fn() -> BoxError),
    /// Nothing, ever.
    Hang,
}

impl Reply {
    pub(crate) fn status(status: u16) -> Self {
        Self::Head(Duration::ZERO, status, Vec::new(), Script::empty())
    }

    pub(crate) fn after(wait: Duration, status: u16) -> Self {
        Self::Head(wait, status, Vec::new(), Script::empty())
    }

    pub(crate) fn retry_after(status: u16, value: &'static str) -> Self {
        let headers = vec![("retry-after", value)];
        Self::Head(Duration::ZERO, status, headers, Script::empty())
    }

    pub(crate) fn body(body: Script) -> Self {
        Self::Head(Duration::ZERO, 200, Vec::new(), body)
    }

    pub(crate) fn error(error: fn() -> BoxError) -> Self {
        Self::Error(Duration::ZERO, error)
    }
}

/// Replies to each call in turn, the last reply again and again, and counts.
///
/// A clone shares the script and the counters but not the readiness, and a call without readiness is
/// recorded.
pub(crate) struct Scripted {
    shared: Arc<Shared>,
    ready: bool,
    readying: Option<Pin<Box<Sleep>>>,
}

/// How long readiness takes, or what it fails with.
pub(crate) type Readiness = Result<Duration, fn() -> BoxError>;

#[derive(Default)]
pub(crate) struct Shared {
    replies: Mutex<VecDeque<Reply>>,
    last: Mutex<Option<fn() -> Reply>>,
    /// How long readiness takes, in turn; then none.
    pub(crate) readiness: Mutex<VecDeque<Readiness>>,
    pub(crate) calls: AtomicUsize,
    pub(crate) live: AtomicUsize,
    pub(crate) most_live: AtomicUsize,
    pub(crate) unready_calls: AtomicUsize,
    /// When each call came, and with what.
    pub(crate) received: Mutex<Vec<(Instant, Req)>>,
}

impl Shared {
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    pub(crate) fn live(&self) -> usize {
        self.live.load(Ordering::SeqCst)
    }

    /// When each call came, in milliseconds from the first.
    pub(crate) fn times(&self) -> Vec<u128> {
        let received = self.received.lock().unwrap();
        let first = received[0].0;
        received
            .iter()
            .map(|(at, _)| at.duration_since(first).as_millis())
            .collect()
    }

    /// Calls were never made unready, and never two at a time.
    pub(crate) fn check(&self) {
        assert_eq!(
            self.unready_calls.load(Ordering::SeqCst),
            0,
            "called without readiness"
        );
        assert!(
            self.most_live.load(Ordering::SeqCst) <= 1,
            "two attempts at once"
        );
    }
}

impl Scripted {
    pub(crate) fn new(replies: impl IntoIterator<Item = Reply>) -> (Self, Arc<Shared>) {
        let shared = Arc::new(Shared::default());
        shared.replies.lock().unwrap().extend(replies);
        let service = Self {
            shared: Arc::clone(&shared),
            ready: false,
            readying: None,
        };
        (service, shared)
    }

    /// The same reply to every call.
    pub(crate) fn always(reply: fn() -> Reply) -> (Self, Arc<Shared>) {
        let (service, shared) = Self::new([]);
        *shared.last.lock().unwrap() = Some(reply);
        (service, shared)
    }

    pub(crate) fn status(statuses: impl IntoIterator<Item = u16>) -> (Self, Arc<Shared>) {
        Self::new(statuses.into_iter().map(Reply::status))
    }
}

impl Clone for Scripted {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            ready: false,
            readying: None,
        }
    }
}

impl Service<Req> for Scripted {
    type Response = Res;
    type Error = BoxError;
    type Future = Live;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if !self.ready && self.readying.is_none() {
            match self.shared.readiness.lock().unwrap().pop_front() {
                Some(Err(error)) => return Poll::Ready(Err(error())),
                Some(Ok(wait)) => self.readying = Some(Box::pin(sleep(wait))),
                None => {}
            }
        }
        if let Some(readying) = &mut self.readying {
            std::task::ready!(readying.as_mut().poll(cx));
            self.readying = None;
        }
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Live {
        let shared = Arc::clone(&self.shared);
        if !std::mem::take(&mut self.ready) {
            shared.unready_calls.fetch_add(1, Ordering::SeqCst);
        }
        shared.calls.fetch_add(1, Ordering::SeqCst);
        let live = shared.live.fetch_add(1, Ordering::SeqCst) + 1;
        shared.most_live.fetch_max(live, Ordering::SeqCst);
        shared
            .received
            .lock()
            .unwrap()
            .push((Instant::now(), request));
        let reply = shared.replies.lock().unwrap().pop_front();
        let reply = reply.or_else(|| shared.last.lock().unwrap().map(|again| again()));
        let reply = reply.expect("one call more than the script has replies");
        Live {
            guard: Guard(shared),
            inner: Box::pin(async move {
                match reply {
                    Reply::Hang => std::future::pending().await,
                    Reply::Error(wait, error) => {
                        pause(wait).await;
                        Err(error())
                    }
                    Reply::Head(wait, status, headers, body) => {
                        pause(wait).await;
                        let mut response = Response::builder().status(status);
                        for (name, value) in headers {
                            response = response.header(name, value);
                        }
                        Ok(response.body(body).unwrap())
                    }
                }
            }),
        }
    }
}

async fn pause(wait: Duration) {
    if !wait.is_zero() {
        sleep(wait).await;
    }
}

/// An attempt, counted while it lives.
pub(crate) struct Live {
    inner: Pin<Box<dyn Future<Output = Result<Res, BoxError>> + Send>>,
    guard: Guard,
}

struct Guard(Arc<Shared>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.live.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Future for Live {
    type Output = Result<Res, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let _ = &self.guard;
        self.inner.as_mut().poll(cx)
    }
}

/// One step of a body.
pub(crate) enum Step {
    Data(&'static str),
    Wait(Duration),
    Trailers(HeaderMap),
    Error(fn() -> BoxError),
    /// Pending, and nobody is woken.
    Silence,
}

/// A body that reads like a trace: data, a pause, data, the end.
pub(crate) struct Script {
    steps: VecDeque<Step>,
    waiting: Option<Pin<Box<Sleep>>>,
    on_drop: Option<Arc<AtomicUsize>>,
    /// What it says of its size.
    pub(crate) hint: SizeHint,
}

impl Script {
    pub(crate) fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        Self {
            steps: steps.into_iter().collect(),
            waiting: None,
            on_drop: None,
            hint: SizeHint::default(),
        }
    }

    pub(crate) fn empty() -> Self {
        Self::new([])
    }

    /// Counts its drop there.
    pub(crate) fn counting_drops(mut self, drops: &Arc<AtomicUsize>) -> Self {
        self.on_drop = Some(Arc::clone(drops));
        self
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        if let Some(drops) = &self.on_drop {
            drops.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Body for Script {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            if let Some(waiting) = &mut self.waiting {
                std::task::ready!(waiting.as_mut().poll(cx));
                self.waiting = None;
            }
            return Poll::Ready(match self.steps.pop_front() {
                None => None,
                Some(Step::Wait(wait)) => {
                    self.waiting = Some(Box::pin(sleep(wait)));
                    continue;
                }
                Some(Step::Silence) => {
                    self.steps.push_front(Step::Silence);
                    return Poll::Pending;
                }
                Some(Step::Data(data)) => {
                    Some(Ok(Frame::data(Bytes::from_static(data.as_bytes()))))
                }
                Some(Step::Trailers(trailers)) => Some(Ok(Frame::trailers(trailers))),
                Some(Step::Error(error)) => Some(Err(error())),
            });
        }
    }

    fn is_end_stream(&self) -> bool {
        self.steps.is_empty() && self.waiting.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.hint
    }
}

/// A body as our layers return it.
pub(crate) trait Bytewise: Body<Data = Bytes, Error = BoxError> {}

impl<B: Body<Data = Bytes, Error = BoxError>> Bytewise for B {}

/// A body of no bytes that holds something until it is dropped.
pub(crate) struct Holding<T>(pub(crate) T);

impl<T: Unpin> Body for Holding<T> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Ready(None)
    }
}

/// What a listener was told.
#[derive(Clone, Debug)]
#[allow(dead_code)] // read by `Debug` when a test fails
pub(crate) struct Told {
    pub(crate) kind: EventKind,
    pub(crate) attempt: u32,
    pub(crate) status: Option<u16>,
    pub(crate) delay: Option<Duration>,
    pub(crate) duration: Option<Duration>,
    pub(crate) stop: Option<StopReason>,
    pub(crate) log: Vec<Attempt>,
    pub(crate) error: Option<String>,
}

/// Remembers every event.
#[derive(Clone, Default)]
pub(crate) struct Recorder(pub(crate) Arc<Mutex<Vec<Told>>>);

impl Recorder {
    pub(crate) fn all(&self) -> Vec<Told> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn kinds(&self) -> Vec<EventKind> {
        self.all().iter().map(|told| told.kind).collect()
    }

    pub(crate) fn count(&self, kind: EventKind) -> usize {
        self.kinds().iter().filter(|k| **k == kind).count()
    }

    /// The one terminal event; panics with the whole sequence when it is not one.
    pub(crate) fn terminal(&self) -> Told {
        let all = self.all();
        let terminal: Vec<_> = all.iter().filter(|told| told.kind.is_terminal()).collect();
        assert_eq!(terminal.len(), 1, "{}", self.sequence());
        terminal[0].clone()
    }

    pub(crate) fn sequence(&self) -> String {
        let mut sequence = String::new();
        for told in self.all() {
            let _ = writeln!(sequence, "{told:?}");
        }
        sequence
    }
}

impl Listener for Recorder {
    fn on_event(&self, event: &Event<'_>) {
        self.0.lock().unwrap().push(Told {
            kind: event.kind,
            attempt: event.attempt,
            status: event.status,
            delay: event.delay,
            duration: event.duration,
            stop: event.stop,
            log: event
                .log
                .map(|log| log.iter().cloned().collect())
                .unwrap_or_default(),
            error: event.error.map(ToString::to_string),
        });
    }
}
