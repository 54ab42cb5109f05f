//! The measured ceiling: a dependency that answers in 40 ms, until it does not.
//!
//! These runs take real time, whatever the speed of the lab: what they show is a matter of
//! milliseconds, and a model's seconds would have nothing to do with it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http_body_util::Full;
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_deadline::{
    AttemptCeiling, AttemptTimedOut, AttemptTimeoutLayer, BoxError, DeadlineLayer, Event,
    EventKind, ProgressBoundLayer, RetryLayer,
};

use crate::client::{self, Client, boxed};
use crate::ledger::Seen;
use crate::model_time::ModelTime;
use crate::run::{Run, name_of};
use crate::scenario::Scenario;
use crate::server::{Answer, Model};

/// How the dependency answers while all is well.
const WELL: Answer = Answer::After(Duration::from_millis(40));
/// How many such answers there are before the run begins: twice what makes an estimate warm.
const WARM: usize = 40;

/// All is well, and then nothing is answered.
pub(crate) static HANGS: [Answer; WARM + 1] = then(Answer::Never);
/// All is well, and then each answer takes ten times as long.
pub(crate) static SLOWS: [Answer; WARM + 1] = then(Answer::After(Duration::from_millis(400)));

const fn then(last: Answer) -> [Answer; WARM + 1] {
    let mut answers = [WELL; WARM + 1];
    if let Some(end) = answers.last_mut() {
        *end = last;
    }
    answers
}

/// After a step this many calls are made one by one: as many as it takes to let go.
const ONE_BY_ONE: usize = 5;
/// Then so many at once: more than it takes to be warm again.
const AT_ONCE: usize = 25;

/// What is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Measured {
    /// One call with a deadline of 3 s and three attempts of at most 10 s, all of which hang.
    TightSla { ceiling: bool },
    /// Calls of one attempt while the dependency has become ten times slower.
    Step,
}

impl Measured {
    /// The name of the stack.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::TightSla { ceiling: false } => "ours-unmeasured",
            Self::TightSla { ceiling: true } | Self::Step => "ours",
        }
    }

    fn client(self, ended: &Arc<AtomicU32>) -> Client {
        let attempt = Duration::from_secs(10);
        let mut timeout = AttemptTimeoutLayer::http(attempt);
        if !matches!(self, Self::TightSla { ceiling: false }) {
            timeout = timeout.ceiling(AttemptCeiling::above(3.0));
        }
        let attempts = match self {
            Self::TightSla { .. } => 3,
            Self::Step => 1,
        };
        let ended = Arc::clone(ended);
        let count = move |event: &Event<'_>| {
            if event.kind == EventKind::Attempt {
                ended.fetch_add(1, Ordering::Relaxed);
            }
        };
        boxed(
            ServiceBuilder::new()
                .layer(DeadlineLayer::new(Duration::from_secs(3)))
                .layer(RetryLayer::http().attempts(attempts).on_event(count))
                .layer(timeout)
                .layer(ProgressBoundLayer::new(attempt))
                .service(client::hyper()),
        )
    }

    pub(crate) async fn run(self, scenario: &'static Scenario) -> Result<Run, BoxError> {
        let time = ModelTime::new(1);
        let model = Model::start(scenario.answers, time).await?;
        let attempts = Arc::new(AtomicU32::new(0));
        let client = self.client(&attempts);
        for _ in 0..WARM {
            get(client.clone(), model.address).await?;
        }

        let warm = attempts.load(Ordering::Relaxed);
        let began = model.ledger.now();
        let outcome = match self {
            Self::TightSla { .. } => match get(client, model.address).await {
                Ok(()) => "complete".to_owned(),
                Err(error) => name_of(&error),
            },
            Self::Step => {
                let mut results = Vec::new();
                for _ in 0..ONE_BY_ONE {
                    results.push(get(client.clone(), model.address).await);
                }
                let rest: Vec<_> = (0..AT_ONCE)
                    .map(|_| get(client.clone(), model.address))
                    .collect();
                results.extend(join_all(rest).await);
                let is_cut = |result: &&Result<(), BoxError>| {
                    let error = result.as_ref().err();
                    error.is_some_and(|e| AttemptTimedOut::find(e).is_some())
                };
                let cut = results.iter().filter(is_cut).count();
                let answered = results.iter().filter(|result| result.is_ok()).count();
                format!("{cut} cut, {answered} answered")
            }
        };
        let ended = model.ledger.now() - began;
        let seen = model.ledger.close().await;
        Ok(Run {
            scenario,
            seen: seen
                .iter()
                .skip(WARM)
                .map(|seen| since(began, *seen))
                .collect(),
            attempts: attempts.load(Ordering::Relaxed) - warm,
            received: 0,
            outcome,
            ended,
            time,
        })
    }
}

async fn get(mut client: Client, address: SocketAddr) -> Result<(), BoxError> {
    let request =
        hyper::Request::get(format!("http://{address}/")).body(Full::new(Bytes::new()))?;
    client.ready().await?.call(request).await.map(drop)
}

fn since(began: f64, seen: Seen) -> Seen {
    Seen {
        arrived: seen.arrived - began,
        wrote: seen.wrote.map(|at| at - began),
        ended: seen.ended.map(|at| at - began),
        tokens: seen.tokens,
    }
}
