//! What a service calls the next one with: a policy's stack around a real client.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::Empty;
use hyper_util::rt::TokioExecutor;
use tonic::transport::{Channel, Endpoint};
use tower::util::BoxCloneSyncService;
use tower::{ServiceBuilder, ServiceExt};
use tower_deadline::{Answer, BoxError, CallPolicy, NeverCopy};

use crate::grpc::{METHOD, Plain};
use crate::hop::Speaks;
use crate::log::{Log, What, time_in};

/// Asks the next service, and says how it answered.
#[derive(Clone)]
pub(crate) struct Client(BoxCloneSyncService<(), StatusCode, BoxError>);

impl Client {
    /// One of `by`, for the service at `address`.
    pub(crate) fn new(
        by: &'static str,
        speaks: Speaks,
        address: SocketAddr,
        policy: &CallPolicy,
        log: &Log,
    ) -> Result<Self, BoxError> {
        let uri = format!("http://{address}/");
        Ok(match speaks {
            Speaks::Http => Self::http(by, uri.parse()?, policy, log.clone()),
            Speaks::Grpc => {
                let endpoint = Endpoint::from_shared(uri)?;
                Self::grpc(by, endpoint.connect_lazy(), policy, log.clone())
            }
        })
    }

    fn http(by: &'static str, uri: Uri, policy: &CallPolicy, log: Log) -> Self {
        let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
            .build_http::<Empty<Bytes>>();
        let stack = ServiceBuilder::new()
            .map_request(move |()| {
                let mut request = Request::new(Empty::new());
                *request.uri_mut() = uri.clone();
                request
            })
            .map_response(|response: Response<_>| response.status())
            .layer(policy.layer())
            // Beneath the stack, so that it sees what is sent.
            .map_request(move |request: Request<Empty<Bytes>>| {
                log.tell(by, What::Sent(time_in(request.headers())));
                request
            })
            .service(client);
        Self(BoxCloneSyncService::new(stack))
    }

    fn grpc(by: &'static str, channel: Channel, policy: &CallPolicy, log: Log) -> Self {
        let stack = ServiceBuilder::new()
            .map_err(Answer::tonic_status)
            .layer(policy.grpc_layer().copy(NeverCopy))
            .map_request(move |request: Request<tonic::body::Body>| {
                log.tell(by, What::Sent(time_in(request.headers())));
                request
            })
            .service(channel);
        Self(BoxCloneSyncService::new(tower::service_fn(move |()| {
            let mut client = tonic::client::Grpc::new(stack.clone());
            async move {
                client.ready().await?;
                let request = tonic::Request::new(Bytes::new());
                client.unary(request, METHOD, Plain).await?;
                Ok::<_, BoxError>(StatusCode::OK)
            }
        })))
    }

    /// An error is answered for.
    pub(crate) async fn ask(&self) -> Result<StatusCode, Answer> {
        Ok(self.0.clone().oneshot(()).await?)
    }
}
