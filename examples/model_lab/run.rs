//! One run: a client calls a model, and everything about it is written down.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::StatusCode;
use tokio::time::timeout;
use tower::timeout::error::Elapsed;
use tower::{Service, ServiceExt};
use tower_deadline::{AttemptStalled, AttemptTimedOut, BoxError, DeadlineExceeded, RetryRefused};

use crate::client::{Client, Request};
use crate::ledger::Seen;
use crate::model_time::ModelTime;
use crate::scenario::{Promise, Scenario, Stack};
use crate::server::{Model, TOKEN};

/// When the lab gives up on a run that nothing else ends, from its beginning.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(120);

/// What came of a scenario.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) scenario: &'static Scenario,
    /// The model's account.
    pub(crate) seen: Vec<Seen>,
    /// The stack's.
    pub(crate) attempts: u32,
    pub(crate) received: u32,
    pub(crate) outcome: String,
    /// In the model's seconds.
    pub(crate) ended: f64,
    /// How they relate to real ones.
    pub(crate) time: ModelTime,
}

impl Run {
    pub(crate) async fn of(scenario: &'static Scenario, time: ModelTime) -> Result<Self, BoxError> {
        if let Stack::Measured(measured, _) = &scenario.stack {
            return measured.run(scenario).await;
        }
        let model = Model::start(scenario.answers, time).await?;
        let attempts = Arc::new(AtomicU32::new(0));
        let mut request = hyper::Request::builder()
            .method(scenario.method)
            .uri(format!("http://{}/answer", model.address))
            .body(Full::new(Bytes::new()))?;
        let client = match &scenario.stack {
            Stack::Today(today) => today.client(time, &attempts),
            Stack::Ours(ours, _) => {
                if let Some(overrides) = ours.call.overrides(time) {
                    request.extensions_mut().insert(overrides);
                }
                ours.client(time, &attempts)
            }
            // It has a run of its own, above.
            Stack::Measured(..) => return Err("it is run elsewhere".into()),
        };

        let mut bytes = Vec::new();
        let exchange = exchange(client, request, &mut bytes);
        let exchanged = timeout(time.real(WATCHDOG), exchange).await;
        let ended = model.ledger.now();
        let outcome = match exchanged {
            Err(_) => "watchdog".to_owned(),
            Ok(Ok(StatusCode::OK)) => "complete".to_owned(),
            Ok(Ok(status)) => status.as_u16().to_string(),
            Ok(Err(error)) => name_of(&error),
        };
        Ok(Self {
            scenario,
            seen: model.ledger.close().await,
            attempts: attempts.load(Ordering::Relaxed),
            received: tokens_in(&bytes),
            outcome,
            ended,
            time,
        })
    }

    pub(crate) fn requests(&self) -> u32 {
        u32::try_from(self.seen.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn generated(&self) -> u32 {
        self.seen.iter().map(|seen| seen.tokens).sum()
    }

    /// What is not as our policy promises. `slack` is the real time that a busy machine may add.
    pub(crate) fn broken_promises(&self, slack: Duration) -> Vec<String> {
        let (Stack::Ours(_, promise) | Stack::Measured(_, promise)) = self.scenario.stack else {
            return Vec::new();
        };
        let slack = self.time.model_seconds(slack);
        let mut broken = Vec::new();
        let mut count = |what, found: u32, promised: u32| {
            if found != promised {
                broken.push(format!("{what}: {found}, promised {promised}"));
            }
        };
        count("requests", self.requests(), promise.requests);
        count("attempts", self.attempts, promise.requests);
        count("tokens generated", self.generated(), promise.generated);
        count("tokens received", self.received, promise.received);
        if self.outcome != promise.outcome {
            let promised = promise.outcome;
            broken.push(format!("outcome: {}, promised {promised}", self.outcome));
        }
        if !in_time(self.ended, &promise, slack) {
            let (from, to) = promise.ended;
            broken.push(format!(
                "ended at {:.2} s, promised {from} s to {to} s",
                self.ended
            ));
        }
        broken
    }
}

/// Within the larger of 5 % and the slack.
fn in_time(ended: f64, promise: &Promise, slack: f64) -> bool {
    let tolerance = |at: f64| (at * 0.05).max(slack);
    let (from, to) = promise.ended;
    ended >= from - tolerance(from) && ended <= to + tolerance(to)
}

/// Sends the request and reads the answer. What arrived is in `bytes`, also when this is dropped.
async fn exchange(
    mut client: Client,
    request: Request,
    bytes: &mut Vec<u8>,
) -> Result<StatusCode, BoxError> {
    let (head, mut body) = client.ready().await?.call(request).await?.into_parts();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            bytes.extend_from_slice(&data);
        }
    }
    Ok(head.status)
}

fn tokens_in(bytes: &[u8]) -> u32 {
    let count = String::from_utf8_lossy(bytes).matches(TOKEN).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// What an error is called, where it is one that a stack raises.
pub(crate) fn name_of(error: &BoxError) -> String {
    let name = if DeadlineExceeded::find(error).is_some() {
        "DeadlineExceeded"
    } else if AttemptTimedOut::find(error).is_some() {
        "AttemptTimedOut"
    } else if AttemptStalled::find(error).is_some() {
        "AttemptStalled"
    } else if RetryRefused::find(error).is_some() {
        "RetryRefused"
    } else if error.is::<Elapsed>() {
        "Elapsed"
    } else {
        return error.to_string();
    };
    name.to_owned()
}
