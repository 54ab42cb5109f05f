//! One service of a chain: it works, then asks the next one.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use http::{HeaderMap, StatusCode};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tower_deadline::{Answer, InheritLayer, call};

use crate::client::Client;
use crate::grpc;
use crate::log::{Log, What, time_in};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speaks {
    Http,
    Grpc,
}

pub(crate) struct Hop {
    pub(crate) name: &'static str,
    pub(crate) work: Duration,
    pub(crate) then: Then,
    pub(crate) log: Log,
}

pub(crate) enum Then {
    /// The last one answers.
    Answer(StatusCode),
    /// Each other one says what the next one said.
    Ask(Client),
}

impl Hop {
    /// What a request makes it do, whichever protocol it came by.
    pub(crate) async fn handle(&self, headers: &HeaderMap) -> Result<StatusCode, Answer> {
        self.log.tell(self.name, What::Received(time_in(headers)));
        let _running = self.log.until_stopped(self.name);
        tokio::time::sleep(self.work).await;
        self.log.tell(self.name, What::Worked(call::remaining()));
        match &self.then {
            Then::Answer(status) => Ok(*status),
            Then::Ask(next) => next.ask().await,
        }
    }
}

/// A service that runs until it is dropped, on a port of its own.
#[derive(Debug)]
pub(crate) struct Serving {
    pub(crate) address: SocketAddr,
    serving: JoinHandle<()>,
}

impl Serving {
    pub(crate) async fn start(hop: Hop, speaks: Speaks) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let serving = match speaks {
            Speaks::Http => tokio::spawn(serve(hop, listener)),
            Speaks::Grpc => tokio::spawn(grpc::serve(hop, listener)),
        };
        Ok(Self { address, serving })
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// When the caller leaves, hyper drops the handler, and with it the call that it makes.
async fn serve(hop: Hop, listener: TcpListener) {
    let app = Router::new()
        .fallback(async |State(hop): State<Arc<Hop>>, headers: HeaderMap| {
            hop.handle(&headers).await
        })
        .layer(InheritLayer::new().enforce(true))
        .with_state(Arc::new(hop));
    if let Err(error) = axum::serve(listener, app).await {
        eprintln!("chain: {error}");
    }
}
