//! Which headers carry what is known of a call over a hop.

use std::time::Duration;

use http::{HeaderMap, HeaderName};

use super::deadline_header::{DeadlineHeader, Format, trim};
use crate::call::Criticality;
use crate::event::{Event, EventKind, Listeners};
use crate::policy::{Problems, Value};

/// The names of the headers of a hop.
///
/// | | default |
/// | --- | --- |
/// | deadline | `X-Deadline-Ms`, see [`DeadlineHeader`] |
/// | criticality | `X-Criticality`: one of `Sheddable`, `SheddablePlus`, `Critical`, `CriticalPlus` |
/// | retry marker | `X-NResilience-Retrying: 1` |
///
/// ```
/// use tower_deadline::{DeadlineHeader, HopHeaders};
///
/// const OURS: HopHeaders = HopHeaders::new()
///     .deadline(&[DeadlineHeader::millis("x-time-left"), DeadlineHeader::GRPC_TIMEOUT])
///     .retry_marker("x-retrying");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct HopHeaders {
    deadline: &'static [DeadlineHeader],
    criticality: &'static str,
    retry_marker: &'static str,
}

impl HopHeaders {
    /// The defaults.
    pub const fn new() -> Self {
        Self {
            deadline: &[DeadlineHeader::X_DEADLINE_MS],
            criticality: "x-criticality",
            retry_marker: "x-nresilience-retrying",
        }
    }

    /// The same, with the deadline in `grpc-timeout`.
    pub const fn grpc() -> Self {
        Self::new().deadline(&[DeadlineHeader::GRPC_TIMEOUT])
    }

    /// The same, with the deadline in each of the forms of [`DeadlineHeader`].
    pub const fn any() -> Self {
        Self::new().deadline(&[
            DeadlineHeader::X_DEADLINE_MS,
            DeadlineHeader::GRPC_TIMEOUT,
            DeadlineHeader::ENVOY,
        ])
    }

    /// The headers that carry a deadline: each is written; of those that are read the smallest counts.
    pub const fn deadline(mut self, headers: &'static [DeadlineHeader]) -> Self {
        self.deadline = headers;
        self
    }

    /// The header that carries a [`Criticality`].
    pub const fn criticality(mut self, name: &'static str) -> Self {
        self.criticality = name;
        self
    }

    /// The header that says, with the value `1`, that the request may be sent again.
    pub const fn retry_marker(mut self, name: &'static str) -> Self {
        self.retry_marker = name;
        self
    }

    /// What is wrong with them.
    #[allow(clippy::indexing_slicing)] // a constant cannot iterate
    pub(crate) const fn problems(&self, problems: &mut Problems) {
        let mut i = 0;
        while i < self.deadline.len() {
            let name = self.deadline[i].name();
            check(name, "headers.deadline", problems);
            let twice = same(name, self.criticality) || same(name, self.retry_marker);
            let mut j = 0;
            let mut again = false;
            while j < i {
                again = again || same(name, self.deadline[j].name());
                j += 1;
            }
            problems.refuse_if(
                twice || again,
                "headers.deadline",
                Value::Word(name),
                "one header cannot carry two things",
            );
            i += 1;
        }
        check(self.criticality, "headers.criticality", problems);
        check(self.retry_marker, "headers.retry_marker", problems);
        problems.refuse_if(
            same(self.criticality, self.retry_marker),
            "headers.retry_marker",
            Value::Word(self.retry_marker),
            "one header cannot carry two things",
        );
    }

    /// Whether no header is named that could carry a deadline.
    pub(crate) const fn carry_no_deadline(&self) -> bool {
        self.deadline.is_empty()
    }

    /// As a service needs them. A name that is none is left out: it is for `validate` to refuse.
    pub(super) fn resolve(&self) -> Names {
        let deadline = self.deadline.iter().filter_map(|header| {
            let name = HeaderName::from_bytes(header.name().as_bytes()).ok()?;
            Some((name, header.format))
        });
        Names {
            deadline: deadline.collect(),
            criticality: HeaderName::from_bytes(self.criticality.as_bytes()).ok(),
            retry_marker: HeaderName::from_bytes(self.retry_marker.as_bytes()).ok(),
        }
    }
}

impl Default for HopHeaders {
    fn default() -> Self {
        Self::new()
    }
}

const fn check(name: &'static str, field: &'static str, problems: &mut Problems) {
    problems.refuse_if(
        !is_token(name.as_bytes()),
        field,
        Value::Word(name),
        "it is no name of a header",
    );
}

/// Whether it is a token of [RFC 9110, 5.6.2](https://www.rfc-editor.org/rfc/rfc9110#section-5.6.2).
#[allow(clippy::indexing_slicing)] // a constant cannot iterate
const fn is_token(name: &[u8]) -> bool {
    let mut i = 0;
    while i < name.len() {
        let ok = name[i].is_ascii_alphanumeric()
            || matches!(
                name[i],
                b'!' | b'#'
                    | b'$'
                    | b'%'
                    | b'&'
                    | b'\''
                    | b'*'
                    | b'+'
                    | b'-'
                    | b'.'
                    | b'^'
                    | b'_'
                    | b'`'
                    | b'|'
                    | b'~'
            );
        if !ok {
            return false;
        }
        i += 1;
    }
    !name.is_empty()
}

#[allow(clippy::indexing_slicing)] // a constant cannot iterate
const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut i = 0;
    while i < a.len() && i < b.len() {
        if !a[i].eq_ignore_ascii_case(&b[i]) {
            return false;
        }
        i += 1;
    }
    a.len() == b.len()
}

/// The names of the headers of a hop, ready to be looked for.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) deadline: Box<[(HeaderName, Format)]>,
    pub(super) criticality: Option<HeaderName>,
    pub(super) retry_marker: Option<HeaderName>,
}

/// Is told of each header whose value was not understood.
pub(super) type Ignored<'a> = &'a mut dyn FnMut(&HeaderName);

/// Tells `listeners` of such a header.
pub(super) fn tell_ignored(name: &HeaderName, listeners: &Listeners) {
    listeners.raise(|| Event {
        header: Some(name.as_str()),
        ..Event::new(EventKind::HeaderIgnored)
    });
}

impl Names {
    /// The smallest of the deadlines.
    pub(super) fn time_left(&self, headers: &HeaderMap, ignored: Ignored<'_>) -> Option<Duration> {
        let each = self.deadline.iter().flat_map(|(name, format)| {
            let values = headers.get_all(name).iter();
            values.map(move |value| (name, format.parse(value.as_bytes())))
        });
        each.filter_map(|(name, parsed)| {
            parsed.unwrap_or_else(|_| {
                ignored(name);
                None
            })
        })
        .min()
    }

    /// The lowest of the labels.
    pub(super) fn criticality(
        &self,
        headers: &HeaderMap,
        ignored: Ignored<'_>,
    ) -> Option<Criticality> {
        let name = self.criticality.as_ref()?;
        let labels = headers.get_all(name).iter().filter_map(|value| {
            let label = Criticality::parse(trim(value.as_bytes()));
            if label.is_none() {
                ignored(name);
            }
            label
        });
        labels.min()
    }

    /// Whether the request is marked as one that may be sent again.
    pub(super) fn retrying(&self, headers: &HeaderMap, ignored: Ignored<'_>) -> bool {
        let Some(name) = self.retry_marker.as_ref() else {
            return false;
        };
        let mut marked = false;
        for value in headers.get_all(name) {
            if trim(value.as_bytes()) == MARKED.as_bytes() {
                marked = true;
            } else {
                ignored(name);
            }
        }
        marked
    }

    /// Takes all of them out.
    pub(super) fn remove_from(&self, headers: &mut HeaderMap) {
        let named = self.deadline.iter().map(|(name, _)| name);
        for name in named.chain(&self.criticality).chain(&self.retry_marker) {
            headers.remove(name);
        }
    }
}

/// The value of the retry marker.
pub(super) const MARKED: &str = "1";
