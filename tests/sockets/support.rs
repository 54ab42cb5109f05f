//! Servers that do exactly what they are told, the clients of it, and who writes down what happened.

use std::future::Future;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tower_deadline::{BoxError, Event, EventKind, StopReason, Verdict};

/// Nothing that a test waits for takes this long, whatever the load. It only turns a hang into a
/// failure.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until `condition` holds. What is waited for has already been caused.
pub(crate) async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            sleep(ms(2)).await;
        }
    };
    timeout(LONG, waiting).await.expect(what);
}

/// What comes of `work`, which has to end.
pub(crate) async fn ended<F: Future>(work: F) -> F::Output {
    timeout(LONG, work).await.expect("it ends")
}

/// A task that ends with its handle.
pub(crate) struct Task(JoinHandle<()>);

impl Task {
    pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What a server has seen of one request.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// The connection it came on; the first is 1.
    pub(crate) connection: usize,
    /// Request line and headers, as they were on the wire.
    pub(crate) head: String,
    /// What followed, chunked coding included.
    pub(crate) body: Vec<u8>,
}

/// What a server has seen so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sight(Arc<Mutex<Seeing>>);

#[derive(Debug, Default)]
struct Seeing {
    connections: usize,
    closed: usize,
    requests: Vec<Seen>,
}

impl Sight {
    pub(crate) fn requests(&self) -> Vec<Seen> {
        lock(&self.0).requests.clone()
    }

    pub(crate) fn connections(&self) -> usize {
        lock(&self.0).connections
    }

    /// The connections that the client has closed.
    pub(crate) fn closed(&self) -> usize {
        lock(&self.0).closed
    }
}

/// A server that writes exact bytes.
pub(crate) struct RawServer {
    pub(crate) address: SocketAddr,
    pub(crate) sight: Sight,
    _task: Task,
}

impl RawServer {
    /// Each connection is talked to by a `script` of its own.
    pub(crate) async fn start<F, Fut>(script: F) -> Self
    where
        F: Fn(Connection) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        Self::run(script, false).await
    }

    /// The same, but a connection is accepted only when the one before has been closed.
    pub(crate) async fn one_at_a_time<F, Fut>(script: F) -> Self
    where
        F: Fn(Connection) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        Self::run(script, true).await
    }

    async fn run<F, Fut>(script: F, one_at_a_time: bool) -> Self
    where
        F: Fn(Connection) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::on(listener, script, one_at_a_time)
    }

    pub(crate) fn on<F, Fut>(listener: TcpListener, script: F, one_at_a_time: bool) -> Self
    where
        F: Fn(Connection) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let address = listener.local_addr().unwrap();
        let sight = Sight::default();
        let seen = sight.clone();
        let task = Task::spawn(async move {
            let mut scripts = Vec::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let number = {
                    let mut seeing = lock(&seen.0);
                    seeing.connections += 1;
                    seeing.connections
                };
                let script = script(Connection {
                    number,
                    stream,
                    read: Vec::new(),
                    closed: false,
                    sight: seen.clone(),
                });
                if one_at_a_time {
                    script.await;
                } else {
                    scripts.push(Task::spawn(script));
                }
            }
        });
        Self {
            address,
            sight,
            _task: task,
        }
    }

    pub(crate) fn uri(&self) -> Uri {
        uri(self.address)
    }
}

pub(crate) fn uri(address: SocketAddr) -> Uri {
    format!("http://{address}/").parse().unwrap()
}

/// One connection of a [`RawServer`].
pub(crate) struct Connection {
    /// The first is 1.
    pub(crate) number: usize,
    pub(crate) stream: TcpStream,
    read: Vec<u8>,
    closed: bool,
    sight: Sight,
}

impl Connection {
    /// Reads a request, its body included, and says how many this server has read by then. `None` at
    /// the end of the connection.
    pub(crate) async fn request(&mut self) -> Option<usize> {
        let end = loop {
            if let Some(end) = find(&self.read, b"\r\n\r\n") {
                break end + 4;
            }
            self.more().await?;
        };
        let head: Vec<u8> = self.read.drain(..end).collect();
        let head = String::from_utf8(head).unwrap();
        let lower = head.to_ascii_lowercase();
        let chunked = lower.contains("transfer-encoding: chunked");
        let length: usize = lower
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"))
            .map_or(0, |length| length.trim().parse().unwrap());
        let end = loop {
            if chunked {
                // The last chunk, then trailers or none, then an empty line.
                let last = find(&self.read, b"0\r\n");
                let end = last.and_then(|at| Some(at + find(&self.read[at..], b"\r\n\r\n")? + 4));
                if let Some(end) = end {
                    break end;
                }
            } else if self.read.len() >= length {
                break length;
            }
            self.more().await?;
        };
        let body = self.read.drain(..end).collect();
        let mut seeing = lock(&self.sight.0);
        seeing.requests.push(Seen {
            connection: self.number,
            head,
            body,
        });
        Some(seeing.requests.len())
    }

    async fn more(&mut self) -> Option<()> {
        match self.stream.read_buf(&mut self.read).await {
            Ok(0) | Err(_) => {
                let open = !std::mem::replace(&mut self.closed, true);
                lock(&self.sight.0).closed += usize::from(open);
                None
            }
            Ok(_) => Some(()),
        }
    }

    /// Writes exactly this. A client that has gone does not matter.
    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref()).await;
    }

    /// Writes byte by byte, with a pause after each, until the client goes.
    pub(crate) async fn drip(&mut self, bytes: impl AsRef<[u8]>, pause: Duration) {
        for byte in bytes.as_ref() {
            if self.stream.write_all(&[*byte]).await.is_err() {
                break;
            }
            sleep(pause).await;
        }
    }

    /// Says nothing more, and waits until the client goes.
    pub(crate) async fn silence(&mut self) {
        while self.more().await.is_some() {
            self.read.clear();
        }
    }
}

pub(crate) fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// A complete response with this status and body, on a connection that is kept.
pub(crate) fn answer(status: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}")
}

/// One chunk.
pub(crate) fn chunk(data: &str) -> String {
    format!("{:x}\r\n{data}\r\n", data.len())
}

/// An address that refuses connections, and that nobody else is given meanwhile.
pub(crate) struct Refusing {
    pub(crate) address: SocketAddr,
    socket: TcpSocket,
}

impl Refusing {
    pub(crate) fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        Self {
            address: socket.local_addr().unwrap(),
            socket,
        }
    }

    /// Refuses no longer.
    pub(crate) fn listen(self) -> TcpListener {
        self.socket.listen(16).unwrap()
    }
}

pub(crate) type Body = Full<Bytes>;

pub(crate) fn client() -> Client<HttpConnector, Body> {
    Client::builder(TokioExecutor::new()).build_http()
}

pub(crate) fn client_http2() -> Client<HttpConnector, Body> {
    Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http()
}

/// A client of requests with any body.
pub(crate) fn client_of<B>() -> Client<HttpConnector, B>
where
    B: http_body::Body + Send,
    B::Data: Send,
{
    Client::builder(TokioExecutor::new()).build_http()
}

pub(crate) fn request(method: Method, uri: Uri, body: &'static str) -> Request<Body> {
    let mut request = Request::new(Full::from(body));
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    request
}

pub(crate) fn get(uri: Uri) -> Request<Body> {
    request(Method::GET, uri, "")
}

pub(crate) fn post(uri: Uri) -> Request<Body> {
    request(Method::POST, uri, "once")
}

/// The whole body, as text.
pub(crate) async fn text<B>(body: B) -> String
where
    B: http_body::Body,
    B::Error: Into<BoxError>,
{
    let read = ended(body.collect()).await;
    let bytes = read.map_err(Into::into).unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The error that a body ends with.
pub(crate) async fn broken<B>(body: B) -> BoxError
where
    B: http_body::Body,
    B::Error: Into<BoxError>,
{
    match ended(body.collect()).await {
        Ok(_) => panic!("the body is whole"),
        Err(error) => error.into(),
    }
}

/// An event, as far as it can be kept.
#[derive(Debug, Clone)]
pub(crate) struct Heard {
    pub(crate) kind: EventKind,
    pub(crate) attempt: u32,
    pub(crate) verdict: Option<Verdict>,
    pub(crate) status: Option<u16>,
    pub(crate) delay: Option<Duration>,
    pub(crate) stop: Option<StopReason>,
    pub(crate) timeout: bool,
}

/// Keeps every event it is told of.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recorder(Arc<Mutex<Vec<Heard>>>);

impl Recorder {
    pub(crate) fn listener(&self) -> impl Fn(&Event<'_>) + Send + Sync + 'static {
        let heard = self.0.clone();
        move |event| {
            lock(&heard).push(Heard {
                kind: event.kind,
                attempt: event.attempt,
                verdict: event.verdict,
                status: event.status,
                delay: event.delay,
                stop: event.stop,
                timeout: event.error.is_some_and(tower_deadline::is_timeout),
            });
        }
    }

    pub(crate) fn heard(&self) -> Vec<Heard> {
        lock(&self.0).clone()
    }

    pub(crate) fn kinds(&self) -> Vec<EventKind> {
        self.heard().iter().map(|heard| heard.kind).collect()
    }

    pub(crate) fn of(&self, kind: EventKind) -> Vec<Heard> {
        let mut heard = self.heard();
        heard.retain(|heard| heard.kind == kind);
        heard
    }

    /// The one terminal event.
    pub(crate) fn terminal(&self) -> Heard {
        let mut heard = self.heard();
        heard.retain(|heard| heard.kind.is_terminal() || heard.kind == EventKind::Cancelled);
        assert_eq!(heard.len(), 1, "{heard:?}");
        heard.remove(0)
    }
}

/// Counts what passes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counter(Arc<Mutex<usize>>);

impl Counter {
    /// Counts, and gives back, what passes.
    pub(crate) fn counting<T>(&self) -> impl Fn(T) -> T + Clone + Send + 'static {
        let count = self.clone();
        move |passing| {
            *lock(&count.0) += 1;
            passing
        }
    }

    pub(crate) fn count(&self) -> usize {
        *lock(&self.0)
    }
}

impl Deref for RawServer {
    type Target = Sight;

    fn deref(&self) -> &Sight {
        &self.sight
    }
}
