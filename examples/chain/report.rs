//! What is printed.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use crate::Findings;
use crate::given_up::slowest;
use crate::storm::{ATTEMPTS, HOPS};
use crate::time_left::DEADLINE;

/// Whole milliseconds, rounded down, as in the headers.
fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds to three digits, for what takes less than one.
fn fine_ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

pub(crate) fn json(found: &Findings) -> Value {
    let hops = found.hops.iter().map(|hop| {
        json!({
            "name": hop.name,
            "received_ms": ms(hop.received),
            "left_ms": ms(hop.left),
            "sent_ms": hop.sent.map(ms),
        })
    });
    json!({
        "hops": hops.collect::<Value>(),
        "stopped_within_ms": fine_ms(slowest(&found.stopped)),
        "storm": {
            "hops": HOPS,
            "plain": found.storm.plain,
            "budget": found.storm.budget,
            "defer": found.storm.defer,
        },
    })
}

pub(crate) fn text(found: &Findings) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    let out = &mut text;
    writeln!(
        out,
        "A client waits {} ms. What each hop has of that, in ms:\n",
        ms(DEADLINE)
    )?;
    writeln!(out, "  hop          received  left  sent on")?;
    for hop in &found.hops {
        let sent = hop
            .sent
            .map_or_else(|| "-".into(), |sent| ms(sent).to_string());
        let (name, received, left) = (hop.name, ms(hop.received), ms(hop.left));
        writeln!(out, "  {name:<12} {received:>8} {left:>5} {sent:>8}")?;
    }

    writeln!(
        out,
        "\nThe client leaves. How long after that each hop stopped, in ms:\n"
    )?;
    for stopped in &found.stopped {
        writeln!(
            out,
            "  {:<12} {:>8.3}",
            stopped.name,
            fine_ms(stopped.after)
        )?;
    }
    let slowest = fine_ms(slowest(&found.stopped));
    writeln!(out, "  {:<12} {slowest:>8.3}", "all of them")?;

    let storm = &found.storm;
    writeln!(
        out,
        "\nThe last of {HOPS} hops is down; each hop makes {ATTEMPTS} attempts. How often one call has it asked:\n"
    )?;
    for (count, how) in [
        (storm.plain, "retries at every hop, and no budget"),
        (
            storm.full_budget,
            "a budget of one retry at every hop, unspent",
        ),
        (
            storm.budget,
            "the same budgets, spent: every call from then on",
        ),
        (
            storm.defer,
            "the hops inside leave the retrying to the client",
        ),
    ] {
        writeln!(out, "  {count:>3}  {how}")?;
    }
    Ok(text)
}
