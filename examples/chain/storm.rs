//! How often the last service of a chain is asked while it fails.

use std::time::Duration;

use http::StatusCode;
use tower_deadline::{Backoff, BoxError, CallPolicy};

use crate::chain::{Chain, Link};
use crate::hop::Speaks::Http;
use crate::log::What;

/// How many services are between the client and the failure, that one included; each is called with
/// a stack that retries.
pub(crate) const HOPS: u32 = 3;
pub(crate) const ATTEMPTS: u32 = 3;

/// Nothing but attempts.
const PLAIN: CallPolicy = CallPolicy::http()
    .attempts(ATTEMPTS)
    .backoff(Backoff::constant(Duration::from_millis(1)))
    .inherit(true)
    .no_budget()
    .checked();
/// Retries are paid for by calls that succeed, and by nothing else: not by the time that passes, so that
/// the counts are the same on a slow machine. There is one in it to begin with.
const WITH_BUDGET: CallPolicy = PLAIN.budget(0.1, 0).checked();
const DEFERRING: CallPolicy = PLAIN.defer_to_caller(true).checked();

/// How often the last service is asked for one call of the client's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Storm {
    pub(crate) plain: usize,
    /// With a budget at each hop that is still full.
    pub(crate) full_budget: usize,
    /// The same when earlier calls have spent it, which is how it is from then on.
    pub(crate) budget: usize,
    pub(crate) defer: usize,
}

/// Makes the calls.
pub(crate) async fn measure() -> Result<Storm, BoxError> {
    let mut plain = failing(&PLAIN, &PLAIN).await?;
    let mut budget = failing(&WITH_BUDGET, &WITH_BUDGET).await?;
    let mut defer = failing(&PLAIN, &DEFERRING).await?;
    Ok(Storm {
        plain: asked(&mut plain).await?,
        full_budget: asked(&mut budget).await?,
        budget: asked(&mut budget).await?,
        defer: asked(&mut defer).await?,
    })
}

const LAST: &str = "storm/bottom";

/// A chain whose last service is down.
async fn failing(
    client: &'static CallPolicy,
    inside: &'static CallPolicy,
) -> Result<Chain, BoxError> {
    let link = |name, called_with| Link {
        name,
        speaks: Http,
        called_with,
        work: Duration::ZERO,
    };
    let links = [
        link("storm/edge", client),
        link("storm/middle", inside),
        link(LAST, inside),
    ];
    Chain::start(&links, StatusCode::SERVICE_UNAVAILABLE).await
}

/// How often one call made the last service be asked.
async fn asked(chain: &mut Chain) -> Result<usize, BoxError> {
    let status = match chain.client.ask().await {
        Ok(status) => status,
        Err(answer) => answer.status(),
    };
    if status != StatusCode::SERVICE_UNAVAILABLE {
        return Err(format!("a call of what is unavailable ended with {status}").into());
    }
    let told = chain.reader.all();
    let asked = told
        .iter()
        .filter(|told| told.by == LAST && matches!(told.what, What::Received(_)));
    Ok(asked.count())
}

/// What is wrong with the counts.
pub(crate) fn faults(storm: &Storm) -> Vec<String> {
    let (hops, attempts) = (HOPS as usize, ATTEMPTS as usize);
    let each = [
        ("plain retries", storm.plain, attempts.pow(HOPS)),
        // The first request, and the one retry of each hop.
        ("full budgets", storm.full_budget, 1 + hops),
        ("spent budgets", storm.budget, 1),
        ("retries left to the client", storm.defer, attempts),
    ];
    let wrong = each.iter().filter(|(_, found, due)| found != due);
    wrong
        .map(|(name, found, due)| {
            format!("with {name} the last service was asked {found} times, not {due}")
        })
        .collect()
}
