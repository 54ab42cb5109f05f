//! The same service over gRPC, with messages that are plain bytes.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::{Buf, BufMut, Bytes};
use http::StatusCode;
use http::uri::PathAndQuery;
use tokio::net::TcpListener;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tower::service_fn;
use tower_deadline::InheritLayer;

use crate::hop::Hop;

pub(crate) const METHOD: PathAndQuery = PathAndQuery::from_static("/chain.Hop/Ask");

/// When the caller leaves, its stream is reset, and tonic drops the handler.
pub(crate) async fn serve(hop: Hop, listener: TcpListener) {
    let routes = Router::new()
        .route(METHOD.path(), axum::routing::post(answer))
        .with_state(Arc::new(hop));
    let serving = Server::builder()
        .layer(InheritLayer::new().enforce(true))
        .add_routes(Routes::from(routes))
        .serve_with_incoming(TcpIncoming::from(listener));
    if let Err(error) = serving.await {
        eprintln!("chain: {error}");
    }
}

/// What tonic's generated code does for a method.
async fn answer(State(hop): State<Arc<Hop>>, request: Request) -> Result<Response, Infallible> {
    let headers = request.headers().clone();
    let method = service_fn(move |_: tonic::Request<Bytes>| {
        let (hop, headers) = (hop.clone(), headers.clone());
        async move {
            match hop.handle(&headers).await {
                Ok(StatusCode::OK) => Ok(tonic::Response::new(Bytes::new())),
                Ok(status) => Err(Status::unavailable(status.to_string())),
                Err(answer) => Err(Status::from(answer)),
            }
        }
    });
    let response = tonic::server::Grpc::new(Plain).unary(method, request).await;
    Ok(response.map(axum::body::Body::new))
}

/// Hands messages through as they are.
#[derive(Debug, Clone, Copy)]
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

    fn encode(&mut self, message: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(message);
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
