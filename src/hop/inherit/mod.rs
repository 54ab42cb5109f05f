//! What a caller said of how long it waits.

mod future;
mod incoming;
mod inherited;
mod layer;
mod service;

pub use self::future::InheritFuture;
pub use self::inherited::Inherited;
pub use self::layer::InheritLayer;
pub use self::service::Inherit;
