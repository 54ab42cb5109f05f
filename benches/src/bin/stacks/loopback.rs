//! Real HTTP/1 on loopback: what is left of the difference beside the work of a client.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::thread;
use std::time::Instant;

use bytes::Bytes;
use cpu_time::ThreadTime;
use futures_util::future::join_all;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tower::ServiceExt;

use crate::rounds::median;
use crate::stacks::{self, Req, Stack};

/// A server on a thread of its own.
fn serve() -> SocketAddr {
    let (told, address) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let _ = told.send(listener.local_addr().expect("an address"));
            loop {
                let Ok((socket, _)) = listener.accept().await else {
                    continue;
                };
                let _ = socket.set_nodelay(true);
                let answer = service_fn(|_| async {
                    Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"hello"))))
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), answer));
            }
        });
    });
    address.recv().expect("the server's address")
}

/// What a variant made of it, in each round.
#[derive(Default)]
struct Rounds {
    /// Requests a second.
    throughput: Vec<f64>,
    /// Microseconds of the client's thread for each request.
    cpu: Vec<f64>,
}

pub(crate) struct Loopback {
    pub(crate) name: &'static str,
    pub(crate) connections: usize,
    pub(crate) throughput: f64,
    /// Throughput over that of the bare client in the same round: the median, and the middle 90 %.
    pub(crate) of_bare: [f64; 3],
    pub(crate) cpu: f64,
    /// The client's time over that of the bare client in the same round.
    pub(crate) cpu_over: f64,
}

async fn run<S: Stack>(
    stack: &S,
    address: SocketAddr,
    connections: usize,
    requests: usize,
) -> (f64, f64) {
    let (begun, cpu) = (Instant::now(), ThreadTime::now());
    let each = requests / connections;
    let workers = (0..connections).map(|_| {
        let mut stack = stack.clone();
        async move {
            for _ in 0..each {
                let request: Req = Request::get(format!("http://{address}/things"))
                    .header("accept", "text/plain")
                    .body(Full::default())
                    .expect("a request");
                let Ok(ready) = stack.ready().await else {
                    panic!("it is ready");
                };
                let Ok(response) = ready.call(request).await else {
                    panic!("it answers");
                };
                assert!(response.into_body().collect().await.is_ok());
            }
        }
    });
    join_all(workers).await;
    let made = (each * connections) as f64;
    (
        made / begun.elapsed().as_secs_f64(),
        cpu.elapsed().as_secs_f64() * 1e6 / made,
    )
}

pub(crate) fn measure(
    runtime: &tokio::runtime::Runtime,
    rounds: usize,
    requests: usize,
) -> Vec<Loopback> {
    let address = serve();
    let mut all = Vec::new();
    for connections in [1, 64] {
        let requests = if connections == 1 {
            requests / 4
        } else {
            requests
        };
        let mut found: [Rounds; 3] = Default::default();
        runtime.block_on(async {
            let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
            let tower = stacks::tower_three(client.clone());
            let ours = stacks::full(client.clone());
            for round in 0..=rounds {
                for place in 0..3 {
                    let at = (round + place) % 3;
                    let (throughput, cpu) = match at {
                        0 => run(&client, address, connections, requests).await,
                        1 => run(&tower, address, connections, requests).await,
                        _ => run(&ours, address, connections, requests).await,
                    };
                    // The first is to warm up.
                    if round > 0 {
                        found[at].throughput.push(throughput);
                        found[at].cpu.push(cpu);
                    }
                }
            }
        });
        let [bare, ..] = &found;
        let (bare_throughput, bare_cpu) = (bare.throughput.clone(), bare.cpu.clone());
        for (name, mut rounds) in ["bare", "tower", "ours, full"].into_iter().zip(found) {
            let mut of_bare: Vec<_> = rounds
                .throughput
                .iter()
                .zip(&bare_throughput)
                .map(|(a, b)| a / b)
                .collect();
            let mut cpu_over: Vec<_> = rounds
                .cpu
                .iter()
                .zip(&bare_cpu)
                .map(|(a, b)| a - b)
                .collect();
            let middle = median(&mut of_bare);
            let n = of_bare.len();
            all.push(Loopback {
                name,
                connections,
                throughput: median(&mut rounds.throughput),
                of_bare: [of_bare[n / 20], middle, of_bare[n - 1 - n / 20]],
                cpu: median(&mut rounds.cpu),
                cpu_over: median(&mut cpu_over),
            });
        }
    }
    all
}
