//! The picture: one row a run, its attempts as bars.

use crate::report::counted;
use crate::run::{Run, WATCHDOG};
use crate::scenario::Stack;

/// Where the columns begin, and where the picture ends.
const STACK: f64 = 276.0;
const CHART: f64 = 552.0;
const OUTCOME: f64 = 1044.0;
const WIDTH: f64 = 1350.0;

const TOP: f64 = 128.0;
const ROW: f64 = 22.0;
/// Between the rows of one scenario and those of the next.
const GROUP: f64 = 8.0;
const BAR: f64 = 14.0;

const TODAY: &str = "#d97706";
const OURS: &str = "#2563eb";
const GOOD: &str = "#15803d";
const BAD: &str = "#b91c1c";
const INK: &str = "#1f2328";
const FAINT: &str = "#59636e";

/// A time axis.
#[derive(Debug, Clone, Copy)]
struct Axis {
    /// Where it ends, in seconds.
    longest: f64,
    /// From one line to the next, and how many there are after the first.
    step: f64,
    steps: u32,
}

/// For the model.
const MODEL: Axis = Axis {
    longest: WATCHDOG.as_secs_f64(),
    step: 20.0,
    steps: 6,
};
/// For what takes real time.
const REAL: Axis = Axis {
    longest: 3.2,
    step: 0.5,
    steps: 6,
};
/// Between the two.
const HEADING: f64 = 76.0;

impl Axis {
    /// Where a moment is.
    fn x(self, seconds: f64) -> f64 {
        let scale = (OUTCOME - 36.0 - CHART) / self.longest;
        CHART + seconds.min(self.longest) * scale
    }

    fn lines(self) -> impl Iterator<Item = f64> {
        (0..=self.steps).map(move |n| f64::from(n) * self.step)
    }

    fn labels(self, y: f64) -> impl Iterator<Item = String> {
        self.lines().map(move |second| {
            let anchor = r#"text-anchor="middle""#;
            text((self.x(second), y), FAINT, anchor, &format!("{second} s"))
        })
    }
}

fn axis_of(run: &Run) -> Axis {
    match run.scenario.stack {
        Stack::Measured(..) => REAL,
        Stack::Today(_) | Stack::Ours(..) => MODEL,
    }
}

/// It brings its own background, since the page's may be dark.
pub(crate) fn picture(runs: &[Run]) -> String {
    let mut parts = Vec::new();
    let mut y = TOP;
    let real = |run: &Run| matches!(run.scenario.stack, Stack::Measured(..));
    let split = runs.iter().position(real).unwrap_or(runs.len());
    let (model, quick) = runs.split_at(split);
    for (index, group) in groups(model).enumerate() {
        scenario(&mut parts, group, y, index % 2 == 0);
        y += height(group);
    }
    parts.extend(MODEL.labels(y + 18.0));
    if !quick.is_empty() {
        y += HEADING;
        parts.push(text(
            (24.0, y - 14.0),
            INK,
            r#"font-weight="700""#,
            "A dependency that answers in 40 ms, and then hangs, or takes 400 ms (real time)",
        ));
        for (index, group) in groups(quick).enumerate() {
            scenario(&mut parts, group, y, index % 2 == 0);
            y += height(group);
        }
        parts.extend(REAL.labels(y + 18.0));
    }
    let mut all = frame(y);
    // The grid lies over the bands and under the bars, which come later in each group.
    all.append(&mut parts);
    all.push("</svg>\n".to_owned());
    all.join("\n")
}

fn groups(runs: &[Run]) -> impl Iterator<Item = &[Run]> {
    runs.chunk_by(|a, b| a.scenario.name == b.scenario.name)
}

fn height(group: &[Run]) -> f64 {
    group.iter().map(|_| ROW).sum::<f64>() + GROUP
}

/// Background, title, legend and the labels of the axis.
fn frame(bottom: f64) -> Vec<String> {
    let height = bottom + 44.0;
    let mut parts = vec![
        format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" font-family="system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif" font-size="13">"#
        ),
        "<title>The model lab: each run as a timeline, its attempts as bars</title>".to_owned(),
        format!(
            r##"<rect x="0.5" y="0.5" width="{}" height="{}" rx="8" fill="#ffffff" stroke="#d1d9e0"/>"##,
            WIDTH - 1.0,
            height - 1.0
        ),
        format!(
            r#"<text x="24" y="40" font-size="22" font-weight="700" fill="{INK}">The same model, called through <tspan fill="{TODAY}">today's stack</tspan> and through <tspan fill="{OURS}">tower-deadline</tspan></text>"#
        ),
        text(
            (24.0, 64.0),
            FAINT,
            "",
            "It answers with 780 tokens in 40 s. One bar is one request that it saw; the mark stands where the call ended for its caller.",
        ),
    ];
    for (at, opacity, meaning) in [
        (24.0, 1.0, "the model is writing"),
        (210.0, 0.25, "an open request, nothing written"),
    ] {
        for (dx, color) in [(0.0, TODAY), (14.0, OURS)] {
            parts.push(bar((at + dx, 78.0), 14.0, color, opacity));
        }
        parts.push(text((at + 36.0, 90.0), FAINT, "", meaning));
    }
    for (at, good, meaning) in [(490.0, true, "answered"), (590.0, false, "not answered")] {
        parts.push(mark((at, 85.0), good));
        parts.push(text((at + 14.0, 90.0), FAINT, "", meaning));
    }
    parts.extend(MODEL.labels(TOP - 12.0));
    parts
}

/// The rows of one scenario.
fn scenario(parts: &mut Vec<String>, group: &[Run], top: f64, shaded: bool) {
    let bottom = top + height(group);
    if shaded {
        parts.push(format!(
            r##"<rect x="8" y="{top}" width="{}" height="{}" rx="4" fill="#f3f5f8"/>"##,
            WIDTH - 16.0,
            bottom - top
        ));
    }
    let Some(axis) = group.first().map(axis_of) else {
        return;
    };
    for second in axis.lines() {
        let x = axis.x(second);
        parts.push(format!(
            r##"<path d="M{x:.1} {top}V{bottom}" stroke="#d1d9e0" stroke-width="1"/>"##
        ));
    }
    let mut middle = top + f64::midpoint(GROUP, ROW);
    if let Some(run) = group.first() {
        let at = (24.0, f64::midpoint(top, bottom) + 4.5);
        parts.push(text(at, INK, r#"font-weight="600""#, run.scenario.name));
    }
    for run in group {
        row(parts, run, middle);
        middle += ROW;
    }
}

fn row(parts: &mut Vec<String>, run: &Run, middle: f64) {
    let color = match run.scenario.stack {
        Stack::Today(_) => TODAY,
        Stack::Ours(..) | Stack::Measured(..) => OURS,
    };
    let stack = match run.scenario.stack.name() {
        // Too long for its column; the setting says what is different.
        "ours-unmeasured" => "ours",
        name => name,
    };
    let x = |seconds| axis_of(run).x(seconds);
    let baseline = middle + 4.5;
    parts.push(text(
        (STACK, baseline),
        color,
        r#"font-weight="700""#,
        stack,
    ));
    parts.push(text(
        (STACK + 50.0, baseline),
        FAINT,
        r#"font-size="12""#,
        run.scenario.setting,
    ));

    // The whole call, so that the waits between attempts show.
    parts.push(format!(
        r#"<path d="M{:.1} {middle}H{:.1}" stroke="{color}" stroke-width="2"/>"#,
        x(0.0),
        x(run.ended)
    ));
    for (number, seen) in (1..).zip(&run.seen) {
        let from = x(seen.arrived);
        // A little less than it took, so that two that touch are seen to be two.
        let width = (x(seen.ended.unwrap_or(run.ended)) - from - 1.0).max(3.0);
        let y = middle - BAR / 2.0;
        // White beneath, since the pale one is transparent.
        parts.push(bar((from, y), width, "#ffffff", 1.0));
        // An answer that took no time is not one that was waited for.
        let opacity = if width > 3.0 { 0.25 } else { 1.0 };
        parts.push(bar((from, y), width, color, opacity));
        if let Some(wrote) = seen.wrote {
            parts.push(bar((from, y), (x(wrote) - from - 1.0).max(0.0), color, 1.0));
        }
        if run.seen.len() > 1 && width > 12.0 {
            let color = if seen.wrote.is_some() {
                "#ffffff"
            } else {
                color
            };
            let style = r#"font-size="11" font-weight="700""#;
            parts.push(text(
                (from + 4.0, middle + 4.0),
                color,
                style,
                &number.to_string(),
            ));
        }
    }
    // Just behind the end, so that it hides nothing.
    parts.push(mark((x(run.ended) + 12.0, middle), is_answered(run)));

    let color = if is_answered(run) { GOOD } else { BAD };
    parts.push(text(
        (OUTCOME, baseline),
        color,
        r#"font-weight="600""#,
        &what_came_of(run),
    ));
}

fn is_answered(run: &Run) -> bool {
    // After a step, what counts is that all but the first few were.
    run.outcome == "complete" || run.outcome.ends_with("answered")
}

fn what_came_of(run: &Run) -> String {
    let requests = counted(run.requests(), "request");
    let ended = run.ended;
    match run.outcome.as_str() {
        "complete" => format!("{ended:.0} s: answered, {requests}"),
        outcome if matches!(run.scenario.stack, Stack::Measured(..)) => {
            let requests = match run.requests() {
                1..=3 => format!(", {requests}"),
                _ => String::new(), // the outcome tells them apart
            };
            format!("{ended:.2} s: {outcome}{requests}")
        }
        "watchdog" => format!("hangs; the lab ends it at {ended:.0} s"),
        outcome => format!("{ended:.0} s: {outcome}, {requests}"),
    }
}

fn bar((x, y): (f64, f64), width: f64, color: &str, opacity: f64) -> String {
    format!(
        r#"<rect x="{x:.1}" y="{y}" width="{width:.1}" height="{BAR}" rx="2" fill="{color}" fill-opacity="{opacity}"/>"#
    )
}

/// A tick or a cross, on a disc.
fn mark((x, y): (f64, f64), good: bool) -> String {
    let (color, sign) = if good {
        (GOOD, "m-3.4 0.2 2.4 2.6 4.4-5.2")
    } else {
        (BAD, "m-2.8-2.8 5.6 5.6m0-5.6-5.6 5.6")
    };
    format!(
        r##"<circle cx="{x:.1}" cy="{y}" r="7.5" fill="{color}" stroke="#ffffff" stroke-width="1.5"/><path d="M{x:.1} {y}{sign}" fill="none" stroke="#ffffff" stroke-width="1.8"/>"##
    )
}

fn text((x, y): (f64, f64), color: &str, style: &str, text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    format!(r#"<text x="{x:.1}" y="{y}" fill="{color}" {style}>{text}</text>"#)
}
