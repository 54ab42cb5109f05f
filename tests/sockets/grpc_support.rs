//! Servers and clients of tonic's whose messages are bytes, and clients that speak gRPC by hand.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;

use bytes::{Buf, BufMut, Bytes};
use futures_util::Stream;
use http::uri::PathAndQuery;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Channel, Server, server::TcpIncoming};
use tonic::{Code, Status};
use tower::{Layer, Service, service_fn};
use tower_deadline::BoxError;

use crate::support::{Counter, Task, ended, uri};

/// A message is what it consists of.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Plain;

impl Codec for Plain {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(message);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// A handler that returns one message.
pub(crate) fn unary<F, Fut>(
    handler: F,
) -> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ 'static
where
    F: Fn(tonic::Request<Bytes>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Bytes, Status>> + Send + 'static,
{
    service_fn(move |request| {
        let handler = handler.clone();
        async move {
            let handler = service_fn(move |request| {
                let handling = handler(request);
                async move { handling.await.map(tonic::Response::new) }
            });
            let mut grpc = tonic::server::Grpc::new(Plain);
            Ok(grpc.unary(handler, request).await)
        }
    })
}

/// A handler that returns what `messages` makes for each call.
pub(crate) fn streaming<F, St>(
    messages: F,
) -> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ 'static
where
    F: Fn() -> St + Clone + Send + Sync + 'static,
    St: Stream<Item = Result<Bytes, Status>> + Send + 'static,
{
    service_fn(move |request| {
        let messages = messages.clone();
        async move {
            let handler = service_fn(move |_: tonic::Request<Bytes>| {
                let messages = messages();
                async move { Ok(tonic::Response::new(messages)) }
            });
            let mut grpc = tonic::server::Grpc::new(Plain);
            Ok(grpc.server_streaming(handler, request).await)
        }
    })
}

/// A server of tonic's with this layer in it.
pub(crate) async fn serve<L, S, B>(layer: L, handler: S) -> (SocketAddr, Task)
where
    L: Layer<S> + Clone + Send + 'static,
    L::Service: Service<
            Request<Body>,
            Response = Response<B>,
            Error: Into<BoxError> + Send + 'static,
            Future: Send,
        > + Clone
        + Send
        + 'static,
    S: Send + 'static,
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let server = Server::builder().layer(layer);
    let task = Task::spawn(async move {
        server.serve_with_incoming(handler, incoming).await.unwrap();
    });
    (address, task)
}

/// A channel of tonic's.
pub(crate) fn channel(address: SocketAddr) -> Channel {
    let endpoint = Channel::from_shared(uri(address).to_string()).unwrap();
    endpoint.connect_lazy()
}

pub(crate) fn method() -> PathAndQuery {
    PathAndQuery::from_static(METHOD)
}

const METHOD: &str = "/test.Service/Method";

/// A call, with these headers, as a client that knows nothing of tonic sends it.
pub(crate) fn by_hand(address: SocketAddr, headers: &[(&str, &str)]) -> Request<Full<Bytes>> {
    let mut request = Request::post(format!("http://{address}{METHOD}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::from(framed("ask"))).unwrap()
}

/// A message as it is on the wire.
pub(crate) fn framed(message: &str) -> Bytes {
    let mut framed = vec![0];
    framed.put_u32(u32::try_from(message.len()).unwrap());
    framed.put_slice(message.as_bytes());
    framed.into()
}

/// What a client that knows nothing of tonic is told.
#[derive(Debug)]
pub(crate) struct Told {
    /// All of the body.
    pub(crate) body: Bytes,
    /// Head and trailers.
    pub(crate) fields: HeaderMap,
}

impl Told {
    pub(crate) async fn by<B>(response: Response<B>) -> Self
    where
        B: http_body::Body<Data = Bytes, Error: Into<BoxError>>,
    {
        assert_eq!(response.status(), 200);
        let (head, body) = response.into_parts();
        let read = ended(body.collect()).await.map_err(Into::into).unwrap();
        let mut fields = head.headers;
        fields.extend(read.trailers().cloned().unwrap_or_default());
        Self {
            body: read.to_bytes(),
            fields,
        }
    }

    pub(crate) fn code(&self) -> Code {
        Code::from_bytes(self.fields["grpc-status"].as_bytes())
    }
}

/// How many handlers have begun, and how many of them are gone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Handlers {
    begun: Counter,
    gone: Counter,
}

impl Handlers {
    /// A handler has begun; it is gone when what is returned is.
    pub(crate) fn begin(&self) -> Running {
        self.begun.counting()(Running(self.gone.clone()))
    }

    pub(crate) fn begun(&self) -> usize {
        self.begun.count()
    }

    pub(crate) fn gone(&self) -> usize {
        self.gone.count()
    }
}

pub(crate) struct Running(Counter);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.counting()(());
    }
}
