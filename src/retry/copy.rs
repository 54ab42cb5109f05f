//! How a request is copied, so that it can be sent again.

/// Copies a request for a retry.
///
/// The copy has to equal the original: method, URI, version, headers, extensions, body. It is made
/// before the original is sent, and only when a retry could follow. A request that cannot be copied
/// is sent once. Any closure `Fn(&Req) -> Option<Req>` is one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot copy a request of the type `{Req}`",
    label = "a retry layer copies requests with this",
    note = "`CloneRequest`, the default, needs a request (and its body) that is `Clone`",
    note = "for one that is not, give the layer `.copy(NeverCopy)`, or a closure `Fn(&Req) -> Option<Req>`"
)]
pub trait CopyRequest<Req> {
    /// The copy, or `None` when there can be none.
    fn copy(&self, request: &Req) -> Option<Req>;
}

impl<F, Req> CopyRequest<Req> for F
where
    F: Fn(&Req) -> Option<Req>,
{
    fn copy(&self, request: &Req) -> Option<Req> {
        self(request)
    }
}

/// Copies by `Clone`: for an [`http::Request`] whose body is `Clone`, such as one of `Full<Bytes>`,
/// where a copy of the body is a reference to the same bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct CloneRequest;

impl<Req: Clone> CopyRequest<Req> for CloneRequest {
    fn copy(&self, request: &Req) -> Option<Req> {
        Some(request.clone())
    }
}

/// Copies nothing: every request is sent once.
#[derive(Debug, Clone, Copy, Default)]
pub struct NeverCopy;

impl<Req> CopyRequest<Req> for NeverCopy {
    fn copy(&self, _: &Req) -> Option<Req> {
        None
    }
}
