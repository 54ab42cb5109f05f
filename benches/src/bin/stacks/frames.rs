//! What a frame of a body costs.

use std::convert::Infallible;
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tower_deadline::ProgressBody;
use tower_http::timeout::{DeadlineBody, TimeoutBody};

use crate::rounds::{Measured, Variant};
use crate::stacks::ATTEMPT;

/// So many frames, each ready at once, or after one wait.
pub(crate) struct Frames {
    left: u32,
    waits: bool,
    waited: bool,
}

impl Frames {
    pub(crate) fn new(left: u32, waits: bool) -> Self {
        Self {
            left,
            waits,
            waited: false,
        }
    }
}

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        if self.waits && !std::mem::replace(&mut self.waited, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.waited = false;
        self.left -= 1;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[7; 64])))))
    }
}

pub(crate) const BARE: &str = "bare";
pub(crate) const TIMEOUT: &str = "tower-http TimeoutBody";
pub(crate) const OURS: &str = "ours, ProgressBody";

/// Reads a body of `n` frames, each polled by hand until it is ready.
pub(crate) fn by_hand<B: Body>(body: B, n: u32) -> Duration {
    let mut cx = Context::from_waker(Waker::noop());
    let mut body = pin!(body);
    let begun = Instant::now();
    let mut frames = 0;
    loop {
        match body.as_mut().poll_frame(&mut cx) {
            Poll::Pending => {}
            Poll::Ready(None) => break,
            Poll::Ready(Some(frame)) => {
                let _ = black_box(frame);
                frames += 1;
            }
        }
    }
    assert_eq!(frames, n);
    begun.elapsed()
}

fn by_driver<B: Body>(runtime: &tokio::runtime::Runtime, body: B) -> Duration {
    runtime.block_on(async move {
        let mut body = pin!(body);
        let begun = Instant::now();
        while let Some(frame) = body.frame().await {
            let _ = black_box(frame);
        }
        begun.elapsed()
    })
}

/// How the frames come.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Come {
    Ready,
    PendingOnce,
    ThroughTheDriver,
}

pub(crate) fn measure(
    runtime: &tokio::runtime::Runtime,
    come: Come,
    rounds: u32,
    frames: u32,
) -> Measured {
    let _in_runtime = runtime.enter();
    let waits = come != Come::Ready;
    let mut variants = Vec::new();
    macro_rules! variant {
        ($name:expr, $wrap:expr) => {
            let wrap = $wrap;
            variants.push(Variant::new($name, move |n| {
                let body = wrap(Frames::new(n, waits));
                if come == Come::ThroughTheDriver {
                    by_driver(runtime, body)
                } else {
                    by_hand(body, n)
                }
            }));
        };
    }
    variant!(BARE, |frames: Frames| frames);
    variant!(TIMEOUT, |frames| TimeoutBody::new(ATTEMPT, frames));
    variant!("tower-http DeadlineBody", |frames| DeadlineBody::new(
        ATTEMPT, frames
    ));
    variant!(OURS, |frames| ProgressBody::new(frames, ATTEMPT));
    Measured::measure(&mut variants, rounds, frames)
}
