//! A chain of services on loopback, and the client that asks the first of them.

use std::time::Duration;

use http::StatusCode;
use tower_deadline::{BoxError, CallPolicy};

use crate::client::Client;
use crate::hop::{Hop, Serving, Speaks, Then};
use crate::log::{Log, Reader};

/// A service of a chain, as it is to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    pub(crate) name: &'static str,
    pub(crate) speaks: Speaks,
    /// How it is called by the one before it.
    pub(crate) called_with: &'static CallPolicy,
    pub(crate) work: Duration,
}

pub(crate) struct Chain {
    pub(crate) client: Client,
    pub(crate) reader: Reader,
    pub(crate) _serving: Vec<Serving>,
}

impl Chain {
    /// Starts the services. The last one answers `status`.
    pub(crate) async fn start(links: &[Link], status: StatusCode) -> Result<Self, BoxError> {
        let (log, reader) = Log::new();
        let mut serving = Vec::new();
        let mut then = Then::Answer(status);
        // The last one first: each has to know where the next one is.
        let callers = links.iter().map(|link| link.name).rev().skip(1);
        for (link, caller) in links.iter().rev().zip(callers.chain(["client"])) {
            let hop = Hop {
                name: link.name,
                work: link.work,
                then,
                log: log.clone(),
            };
            let started = Serving::start(hop, link.speaks).await?;
            let (address, policy) = (started.address, link.called_with);
            serving.push(started);
            then = Then::Ask(Client::new(caller, link.speaks, address, policy, &log)?);
        }
        let Then::Ask(client) = then else {
            return Err("a chain has at least one service".into());
        };
        Ok(Self {
            client,
            reader,
            _serving: serving,
        })
    }
}
