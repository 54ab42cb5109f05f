//! What the services of a chain tell of themselves, in the order in which it happens.

use std::time::Duration;

use http::HeaderMap;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, timeout};
use tower_deadline::{BoxError, DeadlineHeader};

/// How long to wait for something that is to happen at once.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) by: &'static str,
    pub(crate) what: What,
}

#[derive(Debug)]
pub(crate) enum What {
    /// A request arrived, with this much time in its header.
    Received(Option<Duration>),
    /// Its own work is done, with this much time left.
    Worked(Option<Duration>),
    /// A request went out to the next service, with this much time in its header.
    Sent(Option<Duration>),
    /// The handler has ended, or was dropped.
    Stopped(Instant),
}

/// Where to tell it.
#[derive(Debug, Clone)]
pub(crate) struct Log(UnboundedSender<Told>);

impl Log {
    pub(crate) fn new() -> (Self, Reader) {
        let (log, reader) = unbounded_channel();
        (Self(log), Reader(reader))
    }

    pub(crate) fn tell(&self, by: &'static str, what: What) {
        // Nobody reads any longer what happens at the very end.
        let _ = self.0.send(Told { by, what });
    }

    /// Tells of a handler's end, whatever it is.
    pub(crate) fn until_stopped(&self, by: &'static str) -> Running {
        Running {
            log: self.clone(),
            by,
        }
    }
}

/// Kept by a handler for as long as it runs.
#[derive(Debug)]
pub(crate) struct Running {
    log: Log,
    by: &'static str,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.log.tell(self.by, What::Stopped(Instant::now()));
    }
}

#[derive(Debug)]
pub(crate) struct Reader(UnboundedReceiver<Told>);

impl Reader {
    /// What is told next.
    pub(crate) async fn next(&mut self) -> Result<Told, BoxError> {
        let told = timeout(PATIENCE, self.0.recv()).await?;
        told.ok_or_else(|| "all services are gone".into())
    }

    /// What has been told so far.
    pub(crate) fn all(&mut self) -> Vec<Told> {
        std::iter::from_fn(|| self.0.try_recv().ok()).collect()
    }
}

/// The time that a request says it has.
pub(crate) fn time_in(headers: &HeaderMap) -> Option<Duration> {
    let forms = [DeadlineHeader::X_DEADLINE_MS, DeadlineHeader::GRPC_TIMEOUT];
    forms.iter().find_map(|form| {
        let value = headers.get(form.name())?;
        form.parse(value.as_bytes()).ok()?
    })
}
