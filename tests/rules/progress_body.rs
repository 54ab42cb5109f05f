//! The body that bounds its gaps, by itself.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use tower_deadline::{AnyBytes, BoxError, ProgressBody};

use crate::support::*;

const GAP: Duration = Duration::from_millis(100);

#[tokio::test(start_paused = true)]
async fn a_body_of_no_frames_at_all_is_no_stall() {
    let collected = ProgressBody::new(Script::empty(), Duration::ZERO)
        .collect()
        .await;
    assert!(collected.unwrap().to_bytes().is_empty());
}

#[test]
fn size_and_end_are_forwarded_and_no_timer_is_made_for_what_does_not_wait() {
    // There is no runtime here: making a timer would panic.
    let full = ProgressBody::new(Full::new(Bytes::from_static(b"12345")), GAP);
    assert_eq!(full.size_hint().exact(), Some(5));
    assert!(!full.is_end_stream());
    for empty in [
        ProgressBody::new(Full::new(Bytes::new()), GAP),
        ProgressBody::new(Full::default(), GAP),
    ] {
        assert!(empty.is_end_stream());
    }
    let mut hinted = Script::empty();
    let mut hint = SizeHint::new();
    hint.set_lower(3);
    hint.set_upper(9);
    hinted.hint = hint;
    let hinted = ProgressBody::new(hinted, GAP).size_hint();
    assert_eq!((hinted.lower(), hinted.upper()), (3, Some(9)));
    let read = ProgressBody::new(Empty::<Bytes>::new(), GAP).collect();
    let read = futures_util::FutureExt::now_or_never(read);
    assert!(read.unwrap().is_ok());
}

#[test]
fn it_is_unpin_and_sync_when_its_body_is_and_asks_for_neither() {
    fn check<T: Unpin + Send + Sync>() {}
    fn is_body<T: Body>() {}
    check::<ProgressBody<Full<Bytes>>>();
    check::<ProgressBody<Full<Bytes>, AnyBytes>>();
    // Neither Sync nor Unpin.
    struct Odd(std::cell::Cell<u8>, std::marker::PhantomPinned);
    impl Body for Odd {
        type Data = Bytes;
        type Error = BoxError;
        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            let _ = (self.0.get(), self.1);
            std::task::Poll::Ready(None)
        }
    }
    is_body::<ProgressBody<Odd>>();
}

#[tokio::test(start_paused = true)]
async fn a_predicate_sees_every_piece_of_a_frame_in_pieces() {
    let chained = Bytes::from_static(b": ping\n").chain(Bytes::from_static(b"data: x\n"));
    let stream = futures_util::stream::iter([Ok::<_, BoxError>(Frame::data(chained))]);
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = Arc::clone(&seen);
    let mut body =
        ProgressBody::new(StreamBody::new(stream), GAP).progress_when(move |bytes: &[u8]| {
            kept.lock().unwrap().push(bytes.to_vec());
            false
        });
    body.frame().await.unwrap().unwrap();
    assert_eq!(
        *seen.lock().unwrap(),
        [b": ping\n".to_vec(), b"data: x\n".to_vec()]
    );
}

/// Counts how often its waker was used.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A body that says nothing, for ever.
struct Silent;

impl Body for Silent {
    type Data = Bytes;
    type Error = BoxError;
    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Pending
    }
}

#[tokio::test(start_paused = true)]
async fn the_task_that_read_last_is_the_one_that_is_woken() {
    let mut body = ProgressBody::new(Silent, GAP);
    let woken = [Arc::<Woken>::default(), Arc::default()];
    let [first, second] = woken.clone().map(Waker::from);
    let counts = || woken.each_ref().map(|woken| woken.0.load(Ordering::SeqCst));
    let mut poll = |waker: &Waker| {
        let polled = Pin::new(&mut body).poll_frame(&mut Context::from_waker(waker));
        polled.map(|frame| frame.unwrap().unwrap_err())
    };
    for waker in [&first, &first, &second, &second] {
        assert!(poll(waker).is_pending());
        tokio::time::advance(GAP / 5).await;
    }
    assert!(poll(&second).is_pending());
    assert_eq!(counts(), [0, 0]);
    tokio::time::sleep(GAP / 5).await;
    assert_eq!(counts(), [0, 1]);
    assert!(poll(&second).is_ready());
}
