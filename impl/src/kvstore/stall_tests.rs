//! A connection that dies without a word: packets are swallowed, nothing is closed.

use std::time::Duration;

use futures::StreamExt;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};

use super::{
    KvStore, Scope,
    config::EtcdConfig,
    etcd::EtcdStore,
    testing::{Etcd, Subject, eventually},
};

/// Between client and etcd; swallows everything while told so.
struct Swallower {
    url: String,
    swallowing: watch::Sender<bool>,
}

impl Swallower {
    async fn start(etcd: &Etcd) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (swallowing, swallow) = watch::channel(false);
        let target = etcd.url().replace("http://", "");
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // A connection that is made while packets are swallowed stays dead.
                if *swallow.borrow() {
                    tokio::spawn(async move {
                        let _held = client;
                        std::future::pending::<()>().await;
                    });
                    continue;
                }
                let server = TcpStream::connect(&target).await.unwrap();
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::spawn(pass(from_client, to_server, swallow.clone()));
                tokio::spawn(pass(from_server, to_client, swallow.clone()));
            }
        });
        Self { url, swallowing }
    }
}

async fn pass(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    swallow: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if !*swallow.borrow() && to.write_all(&buffer[..count]).await.is_err() {
            break;
        }
    }
}

#[tokio::test]
async fn a_connection_that_dies_without_a_word_is_noticed_and_replaced() {
    let etcd = Etcd::start().await;
    let between = Swallower::start(&etcd).await;
    let store = EtcdStore::new(EtcdConfig::from_urls(&[&between.url]).unwrap());
    let mut watch = store
        .watch(&Scope::Prefix("p/".to_owned()), 0)
        .await
        .unwrap();

    between.swallowing.send_replace(true);
    let noticed = tokio::time::timeout(Duration::from_secs(20), watch.next()).await;
    between.swallowing.send_replace(false);

    let error = noticed.expect("noticed by pings").unwrap().unwrap_err();
    assert_eq!(error.reason(), "Unreachable", "{error}");
    eventually("another connection", async || store.get("a").await.is_ok()).await;
}
