//! Deadlines that travel.

use std::future::{pending, ready};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use http::{HeaderMap, Request, Response};
use tokio::runtime::Runtime;
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_deadline::{
    AttemptTimeoutLayer, BoxError, Criticality, DeadlineHeader, DeadlineLayer, HopHeaders,
    InheritLayer, Inherited, PropagateLayer, call,
};

use crate::{headers, poll};

const ALL: [DeadlineHeader; 3] = [
    DeadlineHeader::X_DEADLINE_MS,
    DeadlineHeader::GRPC_TIMEOUT,
    DeadlineHeader::ENVOY,
];

/// A value of each of the headers; and its first twelve bytes as a time to be written.
///
/// # Panics
///
/// When it is read as something that it is not.
pub fn deadline(data: &[u8]) {
    for header in ALL {
        match header.parse(data) {
            Ok(None) => {
                assert_eq!(header, DeadlineHeader::ENVOY);
                let digits = data.trim_ascii();
                assert!(!digits.is_empty() && digits.iter().all(|&digit| digit == b'0'));
            }
            Ok(Some(left)) => {
                assert!(data.iter().any(u8::is_ascii_digit));
                written(header, left);
            }
            Err(_) => {}
        }
        if let Some((seconds, nanos)) = data.split_first_chunk() {
            let nanos = nanos
                .first_chunk()
                .map_or(0, |nanos| u32::from_le_bytes(*nanos));
            let left = Duration::new(u64::from_le_bytes(*seconds), nanos % 1_000_000_000);
            written(header, left);
        }
    }
}

/// What is written is read as no more than there was.
fn written(header: DeadlineHeader, left: Duration) {
    let Some(value) = header.format(left) else {
        assert!(left < Duration::from_millis(1));
        return;
    };
    let read = header.parse(value.as_bytes()).unwrap().unwrap();
    assert!(read <= left, "{left:?} is read as {read:?}");
    assert!(read >= Duration::from_millis(1));
}

const MAXIMUM: Duration = Duration::from_secs(10);
const DEFAULT: Duration = Duration::from_secs(5);
const OWN: Duration = Duration::from_secs(3);

/// A request with these headers, at servers that believe them and that do not, and what they ask of
/// another.
///
/// # Panics
///
/// When a handler has more time than it may, or promises more than it has.
pub fn request(data: &[u8]) {
    // Time stands still, so that what is left is exact.
    thread_local!(static STILL: Runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap());
    STILL.with(|still| {
        let _entered = still.enter();
        let fields = headers(data);
        for named in [&ALL, &ALL[..1], &ALL[1..2]] {
            let headers = HopHeaders::new().deadline(named);
            let inherit = InheritLayer::new().headers(headers).maximum(MAXIMUM);
            let defaulted = inherit.clone().default_deadline(DEFAULT);
            let strict = defaulted.clone().reject_malformed(true);
            let strict = strict.reject_expired(true).enforce(true);
            let nobody = InheritLayer::new().headers(headers);
            let nobody = nobody.default_deadline(DEFAULT).trust_callers(false);

            at(&inherit, named, &fields, None);
            at(&defaulted, named, &fields, Some(MAXIMUM));
            at(&strict, named, &fields, Some(MAXIMUM));
            at(&nobody, named, &fields, Some(DEFAULT));
        }
    });
}

/// What a service saw of a request that reached it.
#[derive(Debug)]
struct Seen {
    left: Option<Duration>,
    inherited: Option<Duration>,
    criticality: Criticality,
    headers: HeaderMap,
}

impl Seen {
    fn of(request: &Request<()>) -> Self {
        let inherited = request.extensions().get::<Inherited>().unwrap();
        assert_eq!(inherited.criticality(), call::criticality());
        assert_eq!(inherited.inside_retry(), call::inside_retry());
        Self {
            left: call::remaining(),
            inherited: inherited.remaining(),
            criticality: inherited.criticality(),
            headers: request.headers().clone(),
        }
    }
}

/// A server with this layer, whose handler has `bound` at most; with none, what it was told.
fn at(
    inherit: &InheritLayer,
    named: &'static [DeadlineHeader],
    fields: &HeaderMap,
    bound: Option<Duration>,
) {
    let seen: Arc<Mutex<Option<Seen>>> = Arc::default();
    let handler = || {
        let seen = Arc::clone(&seen);
        service_fn(move |request: Request<()>| {
            *seen.lock().unwrap() = Some(Seen::of(&request));
            ready(Ok::<_, BoxError>(Response::new(String::new())))
        })
    };
    let mut request = Request::new(());
    request.headers_mut().clone_from(fields);

    // The handler itself.
    let served = ServiceBuilder::new().layer(inherit).service(handler());
    assert!(poll(served.oneshot(request.clone())).is_ready());
    let alone = seen.lock().unwrap().take();
    if let Some(alone) = &alone {
        assert_eq!(alone.left, alone.inherited);
        assert!(
            alone
                .left
                .is_none_or(|left| left <= bound.unwrap_or(MAXIMUM))
        );
        assert!(alone.left.is_some() || bound.is_none(), "unlimited");
        assert!(alone.criticality <= Criticality::Critical);
        if !fields.contains_key("x-criticality") {
            assert_eq!(alone.criticality, Criticality::Critical);
        }
    }

    // What it sends on: what it was offered, and what its own clocks allow.
    let propagate = PropagateLayer::new().headers(HopHeaders::new().deadline(named));
    let relay = ServiceBuilder::new()
        .layer(inherit)
        .layer(propagate.clone())
        .service(handler());
    let _ = poll(relay.oneshot(request.clone()));
    if let Some(sent) = seen.lock().unwrap().take() {
        promises(&sent, named, sent.left);
    }
    let clocked = ServiceBuilder::new()
        .layer(inherit)
        .layer(DeadlineLayer::new(OWN).inherit(true))
        .layer(AttemptTimeoutLayer::http(OWN / 2))
        .layer(propagate)
        .service(handler());
    let _ = poll(clocked.oneshot(request.clone()));
    if let Some(sent) = seen.lock().unwrap().take() {
        let left = sent.left.unwrap().min(OWN / 2);
        promises(&sent, named, Some(left));
    }

    // One that hangs is never answered before its time is over, nor left waiting after it.
    let hanging = ServiceBuilder::new()
        .layer(inherit)
        .service(service_fn(|_: Request<()>| {
            pending::<Result<Response<String>, BoxError>>()
        }));
    if let (Poll::Ready(_), Some(Some(left))) = (
        poll(hanging.oneshot(request)),
        alone.map(|alone| alone.left),
    ) {
        assert_eq!(left, Duration::ZERO);
    }
}

/// What is sent promises no more than `left`.
fn promises(sent: &Seen, named: &[DeadlineHeader], left: Option<Duration>) {
    let label = sent.headers["x-criticality"].to_str().unwrap();
    assert_eq!(label, sent.criticality.to_string());
    let Some(left) = left else {
        return;
    };
    for header in named {
        assert!(sent.headers.contains_key(header.name()));
        for value in sent.headers.get_all(header.name()) {
            let told = header.parse(value.as_bytes()).unwrap().unwrap();
            assert!(told <= left, "{} says {told:?} of {left:?}", header.name());
        }
    }
}
