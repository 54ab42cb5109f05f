//! The verdict on an error.

use std::error::Error;
use std::io;

use super::verdict::{AttemptError, AttemptResult, Classify, Verdict};
use crate::error::{BoxError, Chain, Ours, outermost};

/// Takes any response for a success, and judges errors.
///
/// | error | verdict |
/// | --- | --- |
/// | [`AttemptTimedOut`](crate::AttemptTimedOut), [`AttemptStalled`](crate::AttemptStalled) | `Transient` |
/// | [`DeadlineExceeded`](crate::DeadlineExceeded), [`RetryRefused`](crate::RetryRefused) | `Permanent` |
/// | a transport error anywhere in the chain | `Transient` |
/// | any other | `Permanent` |
///
/// Of several errors of this crate in one chain the outermost decides. Transport errors are
/// [`std::io::Error`]; with the feature `hyper` those of hyper and of hyper-util's client, unless the
/// chain says that the fault was the user's or that the answer could not be parsed; with `http2`
/// those of h2; with `reqwest` those of reqwest, unless they are of building, redirecting, or decoding
/// what has arrived.
#[derive(Debug, Clone, Copy, Default)]
pub struct ErrorClassifier;

impl<Res> Classify<Res> for ErrorClassifier {
    fn classify(&self, result: AttemptResult<'_, Res>) -> Verdict {
        match result {
            Ok(_) => Verdict::Ok,
            Err(error) => verdict_of_error(error.get()),
        }
    }
}

pub(crate) fn verdict_of_error(error: &(dyn Error + 'static)) -> Verdict {
    match outermost(error) {
        Some(Ours::TimedOut(_) | Ours::Stalled(_)) => Verdict::Transient,
        None if is_transport(error) => Verdict::Transient,
        Some(Ours::Exceeded(_) | Ours::Refused(_)) | None => Verdict::Permanent,
    }
}

/// The verdict on the result of an attempt. The classifier is not asked about our own bounds: an
/// attempt that was cut is transient (rule 10), and a call that ended is over.
pub(crate) fn verdict_of<Res>(
    classifier: &impl Classify<Res>,
    result: Result<&Res, &BoxError>,
) -> Verdict {
    match result {
        Ok(response) => classifier.classify(Ok(response)),
        Err(error) => match outermost(&**error) {
            Some(Ours::TimedOut(_)) => Verdict::Transient,
            Some(Ours::Exceeded(_) | Ours::Refused(_)) => Verdict::Permanent,
            Some(Ours::Stalled(_)) | None => classifier.classify(Err(AttemptError::new(&**error))),
        },
    }
}

/// What one link of a chain says of the whole.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Link {
    /// The transport failed.
    Transport,
    /// Whatever else is in the chain, it was not the transport: the request was wrong, its body
    /// failed, or the answer made no sense. Only clients' own errors can say so.
    #[cfg_attr(not(any(feature = "hyper", feature = "reqwest")), allow(dead_code))]
    NotTransport,
    Unknown,
}

fn is_transport(error: &(dyn Error + 'static)) -> bool {
    let mut transport = false;
    for link in Chain::new(error) {
        match judge(link) {
            Link::Transport => transport = true,
            Link::NotTransport => return false,
            Link::Unknown => {}
        }
    }
    transport
}

/// Whether an error says that a peer gave up when the time was over that it had been told, or the
/// client beneath on its behalf: tonic does, on either side.
pub(crate) fn is_peers_timeout(error: &(dyn Error + 'static)) -> bool {
    #[cfg(feature = "tonic")]
    if error.is::<tonic::TimeoutExpired>() {
        return true;
    }
    let _ = error;
    false
}

fn judge(error: &(dyn Error + 'static)) -> Link {
    if error.is::<io::Error>() || is_peers_timeout(error) {
        return Link::Transport;
    }
    #[cfg(feature = "hyper")]
    {
        if let Some(e) = error.downcast_ref::<hyper::Error>() {
            return if e.is_user() || e.is_parse() {
                Link::NotTransport
            } else {
                Link::Transport
            };
        }
        if let Some(e) = error.downcast_ref::<hyper_util::client::legacy::Error>() {
            return if is_users(e) {
                Link::NotTransport
            } else {
                Link::Transport
            };
        }
    }
    #[cfg(feature = "http2")]
    if error.is::<h2::Error>() {
        return Link::Transport;
    }
    #[cfg(feature = "reqwest")]
    if let Some(e) = error.downcast_ref::<reqwest::Error>() {
        return if e.is_builder() || e.is_redirect() {
            Link::NotTransport
        } else if e.is_decode() {
            // Also what it calls a body that broke off: then the cause beneath is the transport's.
            Link::Unknown
        } else {
            Link::Transport
        };
    }
    Link::Unknown
}

/// Whether hyper-util's client refused the request itself: a relative URI, a version that it does not
/// speak. It does not tell but by its name, which is all that such an error consists of.
#[cfg(feature = "hyper")]
fn is_users(error: &hyper_util::client::legacy::Error) -> bool {
    !error.is_connect() && error.source().is_none() && format!("{error:?}").contains("(User")
}

/// Whether an error proves that the request was never acted on: the connection was refused, or the
/// HTTP/2 peer refused the stream (`REFUSED_STREAM`) or went away in good order (`GOAWAY` with
/// `NO_ERROR`). "Calm down" (`ENHANCE_YOUR_CALM`) is overload, and no such proof.
///
/// A connection that was refused is recognised by [`std::io::ErrorKind::ConnectionRefused`]; a
/// connection that broke proves nothing, since the peer may have read the request first.
#[must_use]
pub fn never_left(error: &(dyn Error + 'static)) -> bool {
    outermost(error).is_none() && Chain::new(error).any(proves_never_left)
}

fn proves_never_left(error: &(dyn Error + 'static)) -> bool {
    if let Some(e) = error.downcast_ref::<io::Error>() {
        return e.kind() == io::ErrorKind::ConnectionRefused;
    }
    #[cfg(feature = "http2")]
    if let Some(e) = error.downcast_ref::<h2::Error>() {
        let reason = e.reason();
        return (e.is_remote() && e.is_reset() && reason == Some(h2::Reason::REFUSED_STREAM))
            || (e.is_remote() && e.is_go_away() && reason == Some(h2::Reason::NO_ERROR));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{AttemptTimedOut, DeadlineExceeded};
    use std::fmt;
    use std::sync::{Arc, OnceLock};
    use std::time::Duration;

    #[derive(Debug)]
    struct Wrapped(BoxError);

    impl fmt::Display for Wrapped {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("wrapped")
        }
    }

    impl Error for Wrapped {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&*self.0)
        }
    }

    fn timed_out() -> AttemptTimedOut {
        AttemptTimedOut {
            ceiling: Duration::from_secs(1),
            bound: crate::call::Bound::AttemptTimeout,
            elapsed: Duration::from_secs(1),
            log: OnceLock::new(),
        }
    }

    fn exceeded(source: Option<BoxError>) -> DeadlineExceeded {
        DeadlineExceeded {
            deadline: Duration::from_secs(1),
            origin: crate::call::DeadlineOrigin::Own,
            elapsed: Duration::from_secs(1),
            phase: crate::call::Phase::Attempt,
            log: crate::call::AttemptLog::default(),
            source,
        }
    }

    #[test]
    fn a_transport_error_is_found_anywhere_in_the_chain() {
        let io = io::Error::from(io::ErrorKind::ConnectionReset);
        assert_eq!(verdict_of_error(&io), Verdict::Transient);
        let deep = Wrapped(Box::new(Wrapped(Box::new(io))));
        assert_eq!(verdict_of_error(&deep), Verdict::Transient);
        assert_eq!(verdict_of_error(&fmt::Error), Verdict::Permanent);
    }

    #[test]
    fn the_outermost_of_ours_decides() {
        let inner = exceeded(Some(Box::new(timed_out())));
        assert_eq!(verdict_of_error(&inner), Verdict::Permanent);
        let boxed: BoxError = Box::new(Wrapped(Box::new(inner)));
        assert!(DeadlineExceeded::find(&boxed).is_some());
        assert!(AttemptTimedOut::find(&boxed).is_none());
        assert!(crate::is_timeout(&boxed));
    }

    #[test]
    fn ours_is_found_in_wrappers_that_hide_it_from_source() {
        let io: BoxError = Box::new(io::Error::other(timed_out()));
        assert!(AttemptTimedOut::find(&io).is_some());
        assert_eq!(verdict_of_error(&*io), Verdict::Transient);
        let arc: Arc<dyn Error + Send + Sync> = Arc::new(timed_out());
        let arc: BoxError = Box::new(arc);
        assert!(AttemptTimedOut::find(&arc).is_some());
    }

    #[test]
    fn a_chain_that_bites_its_tail_ends() {
        #[derive(Debug)]
        struct Ouroboros;
        impl fmt::Display for Ouroboros {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("ouroboros")
            }
        }
        impl Error for Ouroboros {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(self)
            }
        }
        assert_eq!(verdict_of_error(&Ouroboros), Verdict::Permanent);
    }

    #[test]
    fn only_a_refused_connection_proves_that_nothing_left() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert!(never_left(&Wrapped(Box::new(refused))));
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        assert!(!never_left(&reset));
        // An attempt that timed out says nothing of where its request got to.
        assert!(!never_left(&timed_out()));
    }

    #[cfg(feature = "http2")]
    #[test]
    fn an_error_that_we_raised_ourselves_proves_nothing_of_the_peer() {
        let local = h2::Error::from(h2::Reason::REFUSED_STREAM);
        assert!(!never_left(&local));
        assert_eq!(verdict_of_error(&local), Verdict::Transient);
    }
}
