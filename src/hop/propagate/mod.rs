//! What a request says of how long its answer is waited for.

mod future;
mod layer;
mod outgoing;
mod service;

pub use self::future::PropagateFuture;
pub use self::layer::PropagateLayer;
pub use self::service::Propagate;

pub(crate) use self::layer::Sent;
