//! A call that is given up, and how soon the work for it ends at each hop.

use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;
use tower_deadline::{BoxError, CallPolicy};

use crate::chain::Chain;
use crate::links;
use crate::log::{Told, What};

/// It waits far longer than the log's reader, so that no deadline stops the work here.
const CLIENT: CallPolicy = CallPolicy::http().propagate_deadline(true).checked();
/// How long the first services work before they ask the next one.
const WORK: Duration = Duration::from_millis(5);
/// How long the last one works. Nobody waits for that.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// How long after its client had left a service stopped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopped {
    pub(crate) name: &'static str,
    pub(crate) after: Duration,
}

/// Drops one call through each chain while the last service works.
pub(crate) async fn measure() -> Result<Vec<Stopped>, BoxError> {
    let mut all = Vec::new();
    for links in [
        links::http(&CLIENT, WORK, FOR_EVER),
        links::grpc(&CLIENT, WORK, FOR_EVER),
    ] {
        let Chain {
            client,
            mut reader,
            _serving,
        } = Chain::start(&links, StatusCode::OK).await?;
        let last = links.last().map(|link| link.name);
        let mut call = Box::pin(client.ask());
        loop {
            tokio::select! {
                outcome = &mut call => {
                    return Err(format!("a call ended before it was given up: {outcome:?}").into());
                }
                told = reader.next() => match told? {
                    Told { by, what: What::Received(_) } if Some(by) == last => break,
                    _ => {}
                },
            }
        }
        let left = Instant::now();
        drop(call);
        let mut stopped = Vec::new();
        while stopped.len() < links.len() {
            let told = reader.next().await.map_err(|_| {
                format!("the work went on without a caller; what stopped is {stopped:?}")
            })?;
            if let What::Stopped(at) = told.what {
                stopped.push(Stopped {
                    name: told.by,
                    after: at.saturating_duration_since(left),
                });
            }
        }
        stopped.sort_by_key(|stopped| links.iter().position(|link| link.name == stopped.name));
        all.append(&mut stopped);
    }
    Ok(all)
}

/// How long it took until all of them had stopped.
pub(crate) fn slowest(stopped: &[Stopped]) -> Duration {
    let each = stopped.iter().map(|stopped| stopped.after);
    each.max().unwrap_or_default()
}
