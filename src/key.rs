//! What budgets and estimates are kept per.

use std::cell::RefCell;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::OnceLock;

use http::header::HOST;
use http::uri::Scheme;
use http::{HeaderMap, Request, Uri};

use crate::call::{with_call, with_current};

/// The dependency that a request goes to.
///
/// A key is a 64-bit hash with a seed of this process, so that looking it up costs no allocation and
/// holding it holds no string of the caller's. That two dependencies share one by accident is
/// as likely as one in 2⁶⁴; nobody outside the process can make them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key(Option<u64>);

impl Key {
    /// The key that all requests share where nothing tells them apart. It needs no look-up.
    pub const SHARED: Self = Self(None);

    /// The key of whatever `value` says: a host, a shard, a tenant.
    ///
    /// ```
    /// use tower_deadline::Key;
    ///
    /// assert_eq!(Key::of("db-1"), Key::of(&String::from("db-1")));
    /// assert_ne!(Key::of("db-1"), Key::of("db-2"));
    /// assert_ne!(Key::of("db-1"), Key::SHARED);
    /// ```
    #[must_use]
    pub fn of<T: Hash + ?Sized>(value: &T) -> Self {
        static SEED: OnceLock<RandomState> = OnceLock::new();
        Self(Some(SEED.get_or_init(RandomState::new).hash_one(value)))
    }

    pub(crate) fn hash(self) -> Option<u64> {
        self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("Key(shared)"),
            Some(hash) => write!(f, "Key({hash:016x})"),
        }
    }
}

/// Says which [`Key`] a request has. Any closure `Fn(&Req) -> Key` does.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say which dependency a request of the type `{Req}` goes to",
    note = "`Authority` is for `http::Request`; for others there are `OneDependency` and closures `Fn(&Req) -> Key`"
)]
pub trait KeyOf<Req> {
    /// The key of `request`.
    fn key_of(&self, request: &Req) -> Key;
}

impl<F, Req> KeyOf<Req> for F
where
    F: Fn(&Req) -> Key,
{
    fn key_of(&self, request: &Req) -> Key {
        self(request)
    }
}

/// One key for all requests: for a stack that serves one dependency, and for request types that say
/// nothing of theirs.
#[derive(Debug, Clone, Copy, Default)]
pub struct OneDependency;

impl<Req> KeyOf<Req> for OneDependency {
    fn key_of(&self, _: &Req) -> Key {
        Key::SHARED
    }
}

/// The authority of an HTTP request: host and port.
///
/// The host is compared without regard to case and without userinfo, and the scheme's default port is
/// filled in. A request whose URI has no authority is told by its `Host` header, and one that has
/// none either has the shared key.
#[derive(Debug, Clone, Copy, Default)]
pub struct Authority;

impl Authority {
    /// The key of requests to `uri`, for reading what is kept for them.
    ///
    /// ```
    /// use tower_deadline::{Authority, Key, RetryBudget};
    ///
    /// let key = Authority::of(&"http://db.internal:8080/".parse().unwrap());
    /// assert_ne!(key, Key::SHARED);
    /// let budget = RetryBudget::automatic(); // and given to a layer
    /// assert_eq!(budget.utilisation(key), Some(0.0));
    /// ```
    #[must_use]
    pub fn of(uri: &Uri) -> Key {
        authority(uri, &HeaderMap::new())
    }
}

impl<B> KeyOf<Request<B>> for Authority {
    fn key_of(&self, request: &Request<B>) -> Key {
        authority(request.uri(), request.headers())
    }
}

fn authority(uri: &Uri, headers: &HeaderMap) -> Key {
    let (text, by_uri) = match uri.authority() {
        Some(authority) => (authority.as_str().as_bytes(), true),
        None => match headers.get(HOST) {
            Some(host) => (host.as_bytes(), false),
            None => return Key::SHARED,
        },
    };
    let secure = uri.scheme() == Some(&Scheme::HTTPS);
    Recent::key(text, [by_uri, secure], || {
        let host = if by_uri {
            without_userinfo(text)
        } else {
            text.trim_ascii()
        };
        let (host, port) = split_port(host);
        if host.is_empty() {
            return Key::SHARED;
        }
        let default_port = if secure { 443 } else { 80 };
        Key::of(&Lowercase {
            host,
            port: port.unwrap_or(default_port),
        })
    })
}

/// The key of an authority that this thread has seen lately: to compare its text is quicker than to hash
/// its host.
#[derive(Clone, Copy)]
struct Recent {
    text: [u8; Self::LONGEST],
    len: usize,
    flags: [bool; 2],
    key: Key,
}

impl Recent {
    const LONGEST: usize = 64;
    /// How many a thread keeps. A power of two.
    const KEPT: usize = 8;

    const NONE: Self = Self {
        text: [0; Self::LONGEST],
        len: 0,
        flags: [false; 2],
        key: Key::SHARED,
    };

    /// The key of what `text` and `flags` say, which is what `find` finds.
    #[inline]
    fn key(text: &[u8], flags: [bool; 2], find: impl FnOnce() -> Key) -> Key {
        thread_local! {
            static KEPT: RefCell<[Recent; Recent::KEPT]> =
                const { RefCell::new([Recent::NONE; Recent::KEPT]) };
        }
        // Hosts of one domain differ at the front, ports at the end.
        let ends = text.first().zip(text.last()).map_or(0, |(a, b)| a ^ b);
        let place = (text.len() ^ usize::from(ends)) % Self::KEPT;
        KEPT.with(|kept| {
            if let Ok(kept) = kept.try_borrow() {
                if let Some(recent) = kept.get(place).filter(|r| r.is(text, flags)) {
                    return recent.key;
                }
            }
            let key = find();
            if let Ok(mut kept) = kept.try_borrow_mut() {
                if let Some(recent) = kept.get_mut(place) {
                    recent.keep(text, flags, key);
                }
            }
            key
        })
    }

    fn is(&self, text: &[u8], flags: [bool; 2]) -> bool {
        self.flags == flags && !text.is_empty() && self.text.get(..self.len) == Some(text)
    }

    fn keep(&mut self, text: &[u8], flags: [bool; 2], key: Key) {
        // A password is not kept about.
        if text.contains(&b'@') {
            return;
        }
        if let Some(kept) = self.text.get_mut(..text.len()) {
            kept.copy_from_slice(text);
            (self.len, self.flags, self.key) = (text.len(), flags, key);
        }
    }
}

fn without_userinfo(authority: &[u8]) -> &[u8] {
    let at = authority.iter().rposition(|&b| b == b'@');
    at.and_then(|at| authority.get(at + 1..))
        .unwrap_or(authority)
}

/// `host`, `host:`, `host:port`, `[v6]`, `[v6]:port`. What comes after the last colon and is no port
/// belongs to the host.
fn split_port(value: &[u8]) -> (&[u8], Option<u16>) {
    let split = value.iter().rposition(|&b| b == b':').and_then(|colon| {
        let (host, port) = (value.get(..colon)?, value.get(colon + 1..)?);
        let bracketed = host.first() == Some(&b'[');
        if bracketed && host.last() != Some(&b']') {
            return None; // the colon is one of the address
        }
        if port.is_empty() {
            return Some((host, None));
        }
        let port = std::str::from_utf8(port).ok()?.parse().ok()?;
        Some((host, Some(port)))
    });
    split.unwrap_or((value, None))
}

/// Hashes as the lowercase form would, without making it.
struct Lowercase<'a> {
    host: &'a [u8],
    port: u16,
}

impl Hash for Lowercase<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // At one go where it is not very long, since a hasher is slow when it is fed byte by byte. No host
        // has the byte between it and the port, so that they cannot run together.
        let [high, low] = self.port.to_be_bytes();
        let mut chunk = [0; 64];
        let mut bytes = self.host.iter().map(u8::to_ascii_lowercase);
        let mut tail = [0xff, high, low].into_iter();
        loop {
            let mut len = 0;
            for (to, from) in chunk.iter_mut().zip(bytes.by_ref().chain(tail.by_ref())) {
                *to = from;
                len += 1;
            }
            state.write(chunk.get(..len).unwrap_or_default());
            if len < chunk.len() {
                return;
            }
        }
    }
}

/// A key that a layer above has found, for a layer beneath: looked for once in a call.
#[derive(Debug, Clone, Copy)]
pub struct Noting<K>(pub(crate) K);

impl<K: KeyOf<Req>, Req> KeyOf<Req> for Noting<K> {
    fn key_of(&self, request: &Req) -> Key {
        let key = self.0.key_of(request);
        with_call(|scope| scope.key = Some(key));
        key
    }
}

/// The key that [`Noting`] has noted in this call.
#[derive(Debug, Clone, Copy)]
pub struct Noted<K>(pub(crate) K);

impl<K: KeyOf<Req>, Req> KeyOf<Req> for Noted<K> {
    fn key_of(&self, request: &Req) -> Key {
        with_current(|scope| scope.key).unwrap_or_else(|| self.0.key_of(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(uri: &str, host: Option<&str>) -> Key {
        let mut request = Request::builder().uri(uri);
        if let Some(host) = host {
            request = request.header(HOST, host);
        }
        Authority.key_of(&request.body(()).unwrap())
    }

    #[test]
    fn the_same_dependency_has_the_same_key() {
        let expected = key("http://example.com/", None);
        for same in [
            "http://EXAMPLE.com/path?query",
            "http://example.com:80/",
            "http://user:secret@Example.Com/",
            "ws://example.com",
        ] {
            assert_eq!(key(same, None), expected, "{same}");
        }
        // The authority of the URI stands before the header.
        assert_eq!(key("http://example.com/", Some("other")), expected);
        assert_eq!(key("/", Some("example.com")), expected);
        assert_eq!(key("/", Some(" Example.com:80 ")), expected);
        assert_eq!(key("https://h/", None), key("https://h:443/other", None));
        assert_eq!(key("http://[::1]/", None), key("/", Some("[::1]")));
        assert_eq!(
            key("http://[::1]:8080/", None),
            key("/", Some("[::1]:8080"))
        );
    }

    #[test]
    fn another_dependency_has_another_key() {
        let long = format!("http://{}/", "a".repeat(63));
        let keys = [
            key("http://example.com/", None),
            key("https://example.com/", None),
            key("http://example.com:8080/", None),
            key("http://example.org/", None),
            key("http://[::1]/", None),
            key("http://[::1]:81/", None),
            key(&long, None),
            key("/", None),
        ];
        for (i, a) in keys.iter().enumerate() {
            for b in &keys[i + 1..] {
                assert_ne!(a, b);
            }
        }
    }

    #[test]
    fn what_is_remembered_is_told_apart_by_all_that_the_key_says() {
        let long = "a".repeat(Recent::LONGEST);
        let longer = "a".repeat(Recent::LONGEST + 1);
        let hosts = ["h", "h:80", "h:443", "u@h", "p@h", "", &long, &longer];
        let requests = || {
            let uris = ["http", "https", "ws"].iter().flat_map(|scheme| {
                let hosts = hosts.iter().filter(|host| !host.is_empty());
                hosts.map(move |host| (format!("{scheme}://{host}/"), None))
            });
            uris.chain(hosts.iter().map(|host| ("/".to_owned(), Some(*host))))
        };
        // A thread of its own has nothing to remember.
        let fresh = |uri: String, host: Option<&'static str>| {
            std::thread::spawn(move || key(&uri, host)).join().unwrap()
        };
        for _ in 0..3 {
            for (uri, host) in requests() {
                let host: Option<&'static str> = host.map(|host| &*host.to_owned().leak());
                let again = key(&uri, host);
                assert_eq!(again, fresh(uri.clone(), host), "{uri} {host:?}");
                assert_eq!(again, key(&uri, host), "{uri} {host:?}");
            }
        }
    }

    #[test]
    fn no_password_is_remembered() {
        let mut recent = Recent::NONE;
        recent.keep(b"user:secret@h", [true, false], Key::of("h"));
        assert_eq!(recent.len, 0);
        assert!(!recent.text.contains(&b's'));
        recent.keep(b"h", [true, false], Key::of("h"));
        assert!(recent.is(b"h", [true, false]) && !recent.is(b"h", [false, false]));
    }

    #[test]
    fn a_request_that_names_no_host_has_the_shared_key() {
        assert_eq!(key("/", None), Key::SHARED);
        assert_eq!(key("*", None), Key::SHARED);
        assert_eq!(key("/", Some("")), Key::SHARED);
    }

    #[test]
    fn no_host_header_panics() {
        for odd in [
            ":", "[", "]", "[:", "]:1", ":80", "a:", "a:99999", "::1", "[::1",
        ] {
            let _ = key("/", Some(odd));
        }
        let mut request = Request::new(());
        request
            .headers_mut()
            .insert(HOST, http::HeaderValue::from_bytes(b"\xff\xfe:1").unwrap());
        let _ = Authority.key_of(&request);
    }
}
