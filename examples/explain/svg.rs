//! The walks of a policy as time lines.

use std::fmt::Write as _;
use std::time::Duration;

use tower_deadline::Bound;
use tower_deadline::policy::{End, Explanation, Step, Walk};

const LEFT: f64 = 120.0;
const WIDTH: f64 = 760.0;
const ROW: f64 = 30.0;
const TOP: f64 = 44.0;

/// An SVG of the explanation: one row for each attempt, the waits between them, the deadline.
pub(crate) fn draw(explanation: &Explanation) -> String {
    let walks = [
        ("each attempt hangs", &explanation.transient),
        ("each is throttled", &explanation.throttled),
    ];
    let ends = walks.iter().filter_map(|(_, walk)| walk.at).max();
    // What never ends is drawn as far as the picture goes.
    let span = ends
        .into_iter()
        .chain(explanation.deadline)
        .max()
        .unwrap_or(Duration::from_secs(60));
    let scale = Scale(WIDTH / span.as_secs_f64().max(1e-9));

    let mut body = String::new();
    let mut y = TOP;
    for (name, walk) in walks {
        let _ = writeln!(body, "<text x='8' y='{y}' class='name'>{name}</text>");
        y = walk_rows(&mut body, walk, &scale, y + 12.0) + 26.0;
    }
    if let Some(deadline) = explanation.deadline {
        let x = scale.x(deadline);
        let _ = writeln!(
            body,
            "<line x1='{x:.1}' x2='{x:.1}' y1='{}' y2='{:.1}' class='deadline'/>\
             <text x='{x:.1}' y='{}' class='end'>deadline {}</text>",
            TOP - 14.0,
            y - 26.0,
            TOP - 20.0,
            seconds(deadline)
        );
    }
    let (width, height) = (LEFT + WIDTH + 130.0, y);
    format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width:.0} {height:.0}' \
         font-family='sans-serif' font-size='13'>\n\
         <style>.name{{font-weight:bold}}.attempt{{fill:#3b6ea5}}.clamped{{fill:#b5482f}}\
         .wait{{fill:#ddd}}.deadline{{stroke:#b5482f;stroke-dasharray:4 3}}.end{{text-anchor:end}}\
         text{{fill:#333}}</style>\n\
         <rect width='100%' height='100%' fill='#fff'/>\n{body}</svg>\n"
    )
}

/// Where a point in time is.
struct Scale(f64);

impl Scale {
    fn x(&self, at: Duration) -> f64 {
        LEFT + (at.as_secs_f64() * self.0).min(WIDTH)
    }
}

fn seconds(duration: Duration) -> String {
    format!("{:.2} s", duration.as_secs_f64())
}

/// The rows of one walk, from `y` on. Gives where they end.
fn walk_rows(body: &mut String, walk: &Walk, scale: &Scale, mut y: f64) -> f64 {
    let mut end = Duration::ZERO;
    for step in &walk.steps {
        match step {
            Step::Attempt(attempt) => {
                let (from, to) = (attempt.start, attempt.end.unwrap_or(Duration::MAX));
                let class = if attempt.bound == Some(Bound::Deadline) {
                    "clamped"
                } else {
                    "attempt"
                };
                bar(body, scale, y, from, to, class);
                let how = match attempt.ceiling() {
                    Some(ceiling) => seconds(ceiling),
                    None => "no bound".to_owned(),
                };
                let (x, base) = (scale.x(to) + 6.0, y + 15.0);
                let _ = writeln!(
                    body,
                    "<text x='8' y='{base}'>attempt {}</text><text x='{x:.1}' y='{base}'>{how}</text>",
                    attempt.number
                );
                y += ROW;
                end = to;
            }
            Step::Backoff(wait) => {
                // On the row of the attempt that it comes before.
                bar(body, scale, y, end, end.saturating_add(wait.most), "wait");
            }
            Step::Elided { attempts } => {
                let _ = writeln!(
                    body,
                    "<text x='8' y='{}'>... {attempts} more</text>",
                    y + 15.0
                );
                y += ROW;
            }
            _ => {}
        }
    }
    if let (End::NoRoom { .. }, Some(at)) = (walk.end, walk.at) {
        let _ = writeln!(
            body,
            "<text x='8' y='{}'>no wait fits; at most {}, where one fails sooner</text>",
            y + 15.0,
            seconds(at)
        );
        y += ROW;
    }
    y
}

fn bar(body: &mut String, scale: &Scale, y: f64, from: Duration, to: Duration, class: &str) {
    let (x, width) = (scale.x(from), (scale.x(to) - scale.x(from)).max(1.5));
    let _ = writeln!(
        body,
        "<rect x='{x:.1}' y='{y:.1}' width='{width:.1}' height='20' class='{class}'/>"
    );
}
