//! The service that listens to its callers.

use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tokio::time::Instant;
use tower_service::Service;

use super::future::{InheritFuture, State};
use super::incoming::{read, strip};
use super::inherited::Inherited;
use super::layer::Terms;
use crate::call::Offer;
use crate::event::Listeners;
use crate::hop::headers::{Names, tell_ignored};
use crate::hop::{Answer, AnswerBody, Protocol};
use crate::timer::Timer;

/// The service of [`InheritLayer`](super::InheritLayer).
#[derive(Debug, Clone)]
pub struct Inherit<S> {
    pub(super) inner: S,
    pub(super) shared: Arc<Shared>,
}

/// What its calls have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) terms: Terms,
    pub(super) names: Names,
    pub(super) listeners: Listeners,
}

impl<S, B, ResBody> Service<Request<B>> for Inherit<S>
where
    S: Service<Request<B>, Response = Response<ResBody>> + Clone,
    ResBody: http_body::Body,
{
    type Response = Response<AnswerBody<ResBody>>;
    type Error = S::Error;
    type Future = InheritFuture<S, B>;

    /// Ready, so that `call` is the arrival.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let arrived = Instant::now();
        let Shared {
            terms,
            names,
            listeners,
        } = &*self.shared;
        let mut malformed = false;
        let mut offer = read(terms, names, request.headers(), arrived, &mut |name| {
            malformed = true;
            tell_ignored(name, listeners);
        });
        // Another layer like this one may have listened already, above a queue too.
        if let Some(before) = request.extensions().get::<Inherited>() {
            offer = offer.inside(before.offer);
        }
        let offer = offer.inside(Offer::in_force());
        let protocol = Protocol::of(request.headers());
        strip(terms, names, request.headers_mut());
        request.extensions_mut().insert(Inherited { offer });
        let refuses = terms.reject_expired || terms.enforce;
        let state = if malformed && terms.reject_malformed {
            State::Answering(Answer::malformed())
        } else if refuses && offer.until.is_some_and(|until| until <= arrived) {
            State::Answering(Answer::expired())
        } else {
            State::Readying {
                // `inner` itself is never readied, so a clone is as good as it is.
                service: self.inner.clone(),
                request: Some(request),
            }
        };
        InheritFuture {
            state,
            timer: Timer::default(),
            arrived,
            offer,
            protocol,
            shared: Arc::clone(&self.shared),
        }
    }
}
