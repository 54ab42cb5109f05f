//! One call's own numbers.

use std::time::Duration;

/// What an override says of one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Setting<T> {
    /// Whatever the layer is configured with.
    #[default]
    Inherit,
    /// Without this bound or behaviour, whatever the layer is configured with.
    Off,
    /// This value, whatever the layer is configured with.
    Set(T),
}

impl<T: Copy> Setting<T> {
    /// The value in force where the layer is configured with `configured`.
    pub(crate) fn over(self, configured: Option<T>) -> Option<T> {
        match self {
            Self::Inherit => configured,
            Self::Off => None,
            Self::Set(value) => Some(value),
        }
    }
}

/// This call's own numbers, in place of those that its layers are configured with.
///
/// It can lengthen a bound as well as shorten it, or take it away. A deadline that was inherited or
/// that belongs to an enclosing call still binds: [`call::detach`](crate::call::detach) is the way
/// out of that.
///
/// For an HTTP request, put it into the request's extensions and an
/// [`OverrideLayer`](crate::OverrideLayer) around the stack; for any other request type wrap the
/// call in [`call::with_override`](crate::call::with_override).
///
/// ```
/// use std::time::Duration;
/// use tower_deadline::CallOverride;
///
/// // A report that may take its time, and is safe to send twice although it is a POST.
/// let report = CallOverride::new()
///     .deadline(Duration::from_secs(120))
///     .no_attempt_timeout()
///     .retry();
/// let mut request = http::Request::post("http://reports/").body(())?;
/// request.extensions_mut().insert(report);
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallOverride {
    pub(crate) deadline: Setting<Duration>,
    pub(crate) attempt_timeout: Setting<Duration>,
    pub(crate) attempts: Setting<u32>,
    pub(crate) retry: Setting<()>,
    pub(crate) progress: Setting<Duration>,
    pub(crate) buffering: Setting<usize>,
}

impl CallOverride {
    /// Overrides nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            deadline: Setting::Inherit,
            attempt_timeout: Setting::Inherit,
            attempts: Setting::Inherit,
            retry: Setting::Inherit,
            progress: Setting::Inherit,
            buffering: Setting::Inherit,
        }
    }

    /// The deadline of this call, from the `call` on the [`DeadlineLayer`](crate::DeadlineLayer) to
    /// its response head.
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Setting::Set(deadline);
        self
    }

    /// No deadline of its own. Inherited and enclosing deadlines bind all the same.
    #[must_use]
    pub const fn no_deadline(mut self) -> Self {
        self.deadline = Setting::Off;
        self
    }

    /// The attempt timeout of this call, in place of a measured ceiling too, and with it the gap between two
    /// reads of the body, unless [`progress`](Self::progress) says otherwise or the policy does not bound
    /// the gaps.
    #[must_use]
    pub const fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.attempt_timeout = Setting::Set(timeout);
        self
    }

    /// No attempt timeout, and with it no bound on the gap between two reads of the body unless
    /// [`progress`](Self::progress) says otherwise.
    #[must_use]
    pub const fn no_attempt_timeout(mut self) -> Self {
        self.attempt_timeout = Setting::Off;
        self
    }

    /// How often the request is sent at most, the first time included. 0 means 1.
    #[must_use]
    pub const fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = Setting::Set(attempts);
        self
    }

    /// This request may be sent more than once, whatever its method and its preconditions.
    #[must_use]
    pub const fn retry(mut self) -> Self {
        self.retry = Setting::Set(());
        self
    }

    /// This request is sent once, whatever its method.
    #[must_use]
    pub const fn no_retry(mut self) -> Self {
        self.retry = Setting::Off;
        self
    }

    /// The bound on the gap between two reads of the response body, for this call.
    #[must_use]
    pub const fn progress(mut self, gap: Duration) -> Self {
        self.progress = Setting::Set(gap);
        self
    }

    /// No bound on the gap between two reads of the response body: for a watch or a tunnel that may
    /// be silent for hours.
    #[must_use]
    pub const fn no_progress(mut self) -> Self {
        self.progress = Setting::Off;
        self
    }

    /// Buffer the response of this call, up to so many bytes, where the stack has a
    /// [`BufferResponsesLayer`](crate::BufferResponsesLayer).
    #[must_use]
    pub const fn buffering(mut self, max_bytes: usize) -> Self {
        self.buffering = Setting::Set(max_bytes);
        self
    }

    /// Hand the response of this call over live, whatever its size.
    #[must_use]
    pub const fn no_buffering(mut self) -> Self {
        self.buffering = Setting::Off;
        self
    }

    /// What applies to the gap: its own setting, else that of the attempt timeout (rule 32).
    pub(crate) fn gap(&self) -> Setting<Duration> {
        match self.progress {
            Setting::Inherit => self.attempt_timeout,
            own => own,
        }
    }
}
