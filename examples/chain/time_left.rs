//! The time that is left, from hop to hop.

use std::time::Duration;

use http::StatusCode;
use tower_deadline::{BoxError, CallPolicy};

use crate::chain::{Chain, Link};
use crate::links;
use crate::log::{Told, What};

/// How long the client waits.
pub(crate) const DEADLINE: Duration = Duration::from_secs(1);

const CLIENT: CallPolicy = CallPolicy::http()
    .deadline(DEADLINE)
    .propagate_deadline(true)
    .checked();
/// How long each service works before it asks the next one.
const WORK: Duration = Duration::from_millis(50);

/// The time that one service had.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeLeft {
    pub(crate) name: &'static str,
    /// As its caller said.
    pub(crate) received: Duration,
    /// When its own work was done.
    pub(crate) left: Duration,
    /// As it said to the next one.
    pub(crate) sent: Option<Duration>,
}

/// Makes one call through each chain.
pub(crate) async fn measure() -> Result<Vec<TimeLeft>, BoxError> {
    let mut all = Vec::new();
    for links in [
        links::http(&CLIENT, WORK, WORK),
        links::grpc(&CLIENT, WORK, WORK),
    ] {
        let mut chain = Chain::start(&links, StatusCode::OK).await?;
        let status = chain.client.ask().await.map_err(|answer| {
            let first = links.first().map_or("a chain", |link| link.name);
            format!("{first} could not be asked: {answer}")
        })?;
        let told = chain.reader.all();
        if status != StatusCode::OK {
            return Err(format!("a call ended with {status}: {told:?}").into());
        }
        let hops = links.each_ref().map(|link| of(link, &told));
        for hop in hops {
            all.push(hop?);
        }
    }
    Ok(all)
}

fn of(link: &Link, told: &[Told]) -> Result<TimeLeft, BoxError> {
    let name = link.name;
    let mut said = told.iter().filter(|told| told.by == name);
    let mut find = |pick: fn(&What) -> Option<Duration>| said.find_map(|told| pick(&told.what));
    let received = find(|what| match what {
        What::Received(time) => *time,
        _ => None,
    });
    let left = find(|what| match what {
        What::Worked(time) => *time,
        _ => None,
    });
    let sent = find(|what| match what {
        What::Sent(time) => *time,
        _ => None,
    });
    Ok(TimeLeft {
        name,
        received: received.ok_or_else(|| format!("{name} was not told how long it has"))?,
        left: left.ok_or_else(|| format!("{name} does not know how long it has"))?,
        sent,
    })
}

/// What is wrong with the times, of the hops of one chain or of several one after the other.
pub(crate) fn faults(hops: &[TimeLeft]) -> Vec<String> {
    let mut faults = Vec::new();
    for hop in hops {
        let name = hop.name;
        if hop.left >= hop.received {
            faults.push(format!(
                "{name} worked, and had no less time: {:?} of {:?}",
                hop.left, hop.received
            ));
        }
        if hop.sent.is_some_and(|sent| sent > hop.left) {
            faults.push(format!("{name} promised more than it had"));
        }
    }
    for (hop, next) in hops.iter().zip(hops.iter().skip(1)) {
        let Some(sent) = hop.sent else {
            continue; // the last of its chain
        };
        let (name, after) = (hop.name, next.name);
        if sent != next.received {
            faults.push(format!(
                "{name} sent {sent:?}, and {after} received {:?}",
                next.received
            ));
        }
        if next.received >= hop.received || next.left >= hop.left {
            faults.push(format!("{after} had no less time than {name}"));
        }
    }
    let ends = hops.iter().filter(|hop| hop.sent.is_none());
    let ends: Vec<_> = ends.map(|hop| hop.name).collect();
    if ends != ["http/bottom", "grpc/bottom"] {
        faults.push(format!("nothing was sent on by {ends:?}"));
    }
    faults
}
