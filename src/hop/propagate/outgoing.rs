//! What is written into a request.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::Instant;

use super::layer::Sent;
use crate::call::{Waited, criticality, inside_retry, waited_for};
use crate::event::Listeners;
use crate::hop::deadline_header::Format;
use crate::hop::headers::{MARKED, Names, tell_ignored};

/// What a service writes, and under which names.
#[derive(Debug)]
pub(super) struct Outgoing {
    sent: Sent,
    names: Names,
    listeners: Listeners,
    /// The peer speaks gRPC, by the header that it is told the deadline in.
    pub(super) grpc: bool,
}

/// What came of writing the headers of an attempt.
#[derive(Debug, Clone, Copy)]
pub(super) enum Written {
    /// They are written, and the peer knows that it is waited for until then; if it was told.
    Told(Option<Waited>),
    /// There is not enough time left to say how much.
    TooLate(Waited),
}

impl Outgoing {
    pub(super) fn of(sent: Sent, listeners: Listeners) -> Self {
        let names = sent.headers.resolve();
        let mut formats = names.deadline.iter().map(|(_, format)| *format);
        Self {
            grpc: sent.deadline && formats.any(|format| format == Format::Grpc),
            sent,
            names,
            listeners,
        }
    }

    /// Whether there is nothing to wait for until the headers are written, when the layers of a stack call
    /// each other and `in_stack` is true: whether a request may come again is known then.
    #[inline]
    pub(super) fn is_known_in_call(&self, in_stack: impl FnOnce() -> bool) -> bool {
        let Sent {
            deadline,
            criticality,
            retry_marker,
            ..
        } = self.sent;
        !deadline && !criticality && (!retry_marker || in_stack())
    }

    /// Writes the headers of an attempt that is sent now.
    pub(super) fn write(&self, headers: &mut HeaderMap) -> Written {
        let waited = if self.sent.deadline {
            waited_for()
        } else {
            None
        };
        if let Some(waited) = waited {
            let left = waited.until.saturating_duration_since(Instant::now());
            if !self.write_deadline(headers, left) {
                return Written::TooLate(waited);
            }
        }
        if let Some(name) = self
            .names
            .criticality
            .as_ref()
            .filter(|_| self.sent.criticality)
        {
            let own = self
                .names
                .criticality(headers, &mut |name| self.ignored(name));
            let label = own.map_or(criticality(), |own| own.min(criticality()));
            headers.insert(name, HeaderValue::from_static(label.label()));
        }
        self.write_marker(headers);
        Written::Told(waited)
    }

    /// Writes the part that is known in `call`.
    #[inline]
    pub(super) fn write_marker(&self, headers: &mut HeaderMap) {
        if let Some(name) = &self.names.retry_marker {
            if self.sent.retry_marker && inside_retry() {
                headers.insert(name, HeaderValue::from_static(MARKED));
            }
        }
    }

    /// Says that `left` is left, or the less that the request says already; unless `left` is nothing that
    /// could be said.
    fn write_deadline(&self, headers: &mut HeaderMap, left: Duration) -> bool {
        if left < MILLISECOND {
            return false;
        }
        let own = self
            .names
            .time_left(headers, &mut |name| self.ignored(name));
        let left = own.map_or(left, |own| own.min(left));
        for (name, format) in &self.names.deadline {
            if left < MILLISECOND && says_over(headers, name, *format) {
                continue; // it says so itself, and more exactly than it could be written
            }
            if let Some(value) = format.format(left.max(MILLISECOND)) {
                headers.insert(name, value);
            }
        }
        true
    }

    fn ignored(&self, name: &HeaderName) {
        tell_ignored(name, &self.listeners);
    }
}

/// Whether all that this header says is that the time is over.
fn says_over(headers: &HeaderMap, name: &HeaderName, format: Format) -> bool {
    let mut values = headers.get_all(name).iter();
    let said = values.next().map(|value| format.parse(value.as_bytes()));
    let over = matches!(said, Some(Ok(Some(left))) if left < MILLISECOND);
    over && values.next().is_none()
}

const MILLISECOND: Duration = Duration::from_millis(1);
