//! What is written into a request.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::Instant;

use super::layer::Sent;
use crate::call::{Waited, criticality, inside_retry, waited_for};
use crate::event::{Event, EventKind, Listeners};
use crate::hop::deadline_header::Format;
use crate::hop::headers::{MARKED, Names};

/// What a service writes, and under which names.
#[derive(Debug)]
pub(super) struct Outgoing {
    names: Names,
    /// The deadline is written.
    pub(super) deadline: bool,
    criticality: bool,
    retry_marker: bool,
    listeners: Listeners,
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
        Self {
            names: sent.headers.resolve(),
            deadline: sent.deadline,
            criticality: sent.criticality,
            retry_marker: sent.retry_marker,
            listeners,
        }
    }

    /// Whether nothing is ever written.
    pub(super) fn is_nothing(&self) -> bool {
        !(self.deadline || self.criticality || self.retry_marker)
    }

    /// Whether all that is written is known in `call` already, where the layers of a stack call each other.
    pub(super) fn is_known_in_call(&self) -> bool {
        !self.deadline && !self.criticality
    }

    /// Whether the peer speaks gRPC, by the header that it is told the deadline in.
    pub(super) fn is_grpc(&self) -> bool {
        let mut named = self.names.deadline.iter();
        self.deadline && named.any(|(_, format)| *format == Format::Grpc)
    }

    /// Writes the headers of an attempt that is sent now.
    pub(super) fn write(&self, headers: &mut HeaderMap) -> Written {
        let waited = if self.deadline { waited_for() } else { None };
        if let Some(waited) = waited {
            let left = waited.until.saturating_duration_since(Instant::now());
            if !self.write_deadline(headers, left) {
                return Written::TooLate(waited);
            }
        }
        if let Some(name) = self.names.criticality.as_ref().filter(|_| self.criticality) {
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
            if self.retry_marker && inside_retry() {
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
        self.listeners.raise(|| Event {
            header: Some(name.as_str()),
            ..Event::new(EventKind::HeaderIgnored)
        });
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
