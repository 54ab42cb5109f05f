//! The model: a server that writes one long answer, slowly, and keeps count of what it did.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::unfold;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{CONTENT_TYPE, RETRY_AFTER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use crate::ledger::{Entry, Ledger};
use crate::model_time::ModelTime;

/// From the request to the moment when the model begins to write.
const THINKS: Duration = Duration::from_secs(1);
/// From one token to the next: 20 a second.
const PER_TOKEN: Duration = Duration::from_millis(50);
/// The whole answer, done 40 seconds after the request.
pub(crate) const TOKENS: u32 = 780;
/// Where an answer that stalls does so, six seconds after the request.
const STALLS_AFTER: u32 = 100;
/// From one keep-alive comment to the next.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// What a token looks like, so that the receiver can count.
pub(crate) const TOKEN: &str = "token";

/// How the model answers a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Answer {
    /// Head and body together, when the last token is written.
    AtTheEnd,
    /// The head at once, the body when the last token is written.
    HeadFirst,
    /// Server-sent events, the head with the first token.
    Events,
    /// Server-sent events that stop, without the connection being closed.
    StallingEvents { keep_alive: bool },
    /// An empty answer after so long.
    After(Duration),
    /// 429, at once.
    TooManyRequests { retry_after: Option<Duration> },
    /// Not at all.
    Never,
}

/// A model of its own for one run, on a port of its own.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) address: SocketAddr,
    pub(crate) ledger: Ledger,
    accepting: JoinHandle<()>,
}

impl Model {
    /// Starts it. The first request gets the first of `answers`, and so on; the last is repeated.
    pub(crate) async fn start(answers: &'static [Answer], time: ModelTime) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let ledger = Ledger::new(time);
        let accepting = tokio::spawn(accept(listener, answers, time, ledger.clone()));
        Ok(Self {
            address,
            ledger,
            accepting,
        })
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(
    listener: TcpListener,
    answers: &'static [Answer],
    time: ModelTime,
    ledger: Ledger,
) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(serve(stream, answers, time, ledger.clone()));
    }
}

/// Serves one connection. When its client leaves, hyper drops the answer that is being written, and
/// the model stops.
async fn serve(stream: TcpStream, answers: &'static [Answer], time: ModelTime, ledger: Ledger) {
    // Tokens are small; held back until the previous one is acknowledged they would come in bursts.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let answering = service_fn(|_: Request<Incoming>| {
        let entry = ledger.open();
        let answer = answers.get(entry.number()).or(answers.last()).copied();
        async move {
            let answer = answer.unwrap_or(Answer::Never);
            Ok::<_, Infallible>(respond(answer, Generation::new(entry, time)).await)
        }
    });
    // It fails when the client disconnects, which is part of the play.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), answering)
        .await;
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

async fn respond(answer: Answer, mut generation: Generation) -> Response<Body> {
    match answer {
        Answer::AtTheEnd => Response::new(Full::new(generation.whole().await).boxed_unsync()),
        Answer::HeadFirst => {
            let whole = async move { Ok(Frame::data(generation.whole().await)) };
            let frames = futures_util::stream::once(whole);
            Response::new(StreamBody::new(frames).boxed_unsync())
        }
        Answer::Events => events(generation, None).await,
        Answer::StallingEvents { keep_alive } => events(generation, Some(keep_alive)).await,
        Answer::After(wait) => {
            sleep(generation.time.real(wait)).await;
            Response::new(Full::default().boxed_unsync())
        }
        Answer::TooManyRequests { retry_after } => {
            let mut response = Response::new(Full::default().boxed_unsync());
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
            if let Some(wait) = retry_after {
                let seconds = generation.time.real(wait).as_secs();
                response.headers_mut().insert(RETRY_AFTER, seconds.into());
            }
            response
        }
        Answer::Never => pending().await,
    }
}

/// A stream of events, one a token. `stalling` says whether it stops, and if so whether comments
/// keep coming.
async fn events(generation: Generation, stalling: Option<bool>) -> Response<Body> {
    sleep_until(generation.began + generation.time.real(THINKS)).await;
    let frames = unfold(generation, move |mut generation| async move {
        let event = match stalling {
            Some(keep_alive) if generation.written == STALLS_AFTER => {
                if !keep_alive {
                    pending::<()>().await;
                }
                sleep(generation.time.real(KEEP_ALIVE)).await;
                Bytes::from_static(b": keep-alive\n\n")
            }
            _ if generation.written == TOKENS => return None,
            _ => {
                generation.token().await;
                Bytes::from(format!("data: {TOKEN}\n\n"))
            }
        };
        Some((Ok(Frame::data(event)), generation))
    });
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    let kind = hyper::header::HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// One answer being written. Dropped when it is done or its client has left, whichever is first.
struct Generation {
    entry: Entry,
    time: ModelTime,
    began: Instant,
    written: u32,
}

impl Generation {
    fn new(entry: Entry, time: ModelTime) -> Self {
        Self {
            entry,
            time,
            began: Instant::now(),
            written: 0,
        }
    }

    /// Writes the next token. Reckoned from the beginning, so that late timers do not add up.
    async fn token(&mut self) {
        let due = THINKS + PER_TOKEN * (self.written + 1);
        sleep_until(self.began + self.time.real(due)).await;
        self.written += 1;
        self.entry.token();
    }

    /// Writes the whole answer, as one piece of JSON.
    async fn whole(&mut self) -> Bytes {
        let mut text = String::new();
        while self.written < TOKENS {
            self.token().await;
            text.push_str(TOKEN);
            text.push(' ');
        }
        Bytes::from(format!("{{\"text\":\"{}\"}}", text.trim_end()))
    }
}
