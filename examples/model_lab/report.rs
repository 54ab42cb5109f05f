//! What is printed.

use serde_json::{Value, json};

use crate::run::Run;

/// One line, as soon as a run has ended.
pub(crate) fn line(run: &Run) -> String {
    format!(
        "{:>6.1} s  {}: {} after {}, {} tokens generated, {} received",
        run.ended,
        run.scenario,
        run.outcome,
        counted(run.requests(), "request"),
        run.generated(),
        run.received,
    )
}

pub(crate) fn counted(count: u32, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// All runs, in the order of the scenarios.
pub(crate) fn table(runs: &[Run]) -> String {
    const HEADINGS: [&str; 7] = [
        "scenario",
        "stack",
        "requests",
        "generated",
        "received",
        "outcome",
        "ended at",
    ];
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    rows.extend(runs.iter().map(|run| {
        [
            run.scenario.name.to_owned(),
            run.scenario.stack.name().to_owned(),
            run.requests().to_string(),
            run.generated().to_string(),
            run.received.to_string(),
            run.outcome.clone(),
            format!("{:.1} s", run.ended),
        ]
    }));
    let mut widths = [0; 7];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.len().max(*width);
        }
    }
    let mut table = String::new();
    for row in &rows {
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            // Figures stand at the right of their column.
            let cell = match column {
                2..=4 | 6 => format!("{cell:>width$}  "),
                _ => format!("{cell:<width$}  "),
            };
            table.push_str(&cell);
        }
        table.truncate(table.trim_end().len());
        table.push('\n');
    }
    table
}

pub(crate) fn json(runs: &[Run]) -> Value {
    let objects = runs.iter().map(|run| {
        json!({
            "scenario": run.scenario.name,
            "stack": run.scenario.stack.name(),
            "requests": run.requests(),
            "tokens_generated": run.generated(),
            "tokens_received": run.received,
            "outcome": run.outcome,
            "ended_at_s": (run.ended * 100.0).round() / 100.0,
            "attempts": run.attempts,
        })
    });
    objects.collect()
}
