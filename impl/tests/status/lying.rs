//! Something between `tombolo status` and a process, or a process itself, that does not tell the truth.

use std::sync::{Arc, Mutex};

use anyhow::{Result, ensure};
use axum::{Router, extract::State, http::Uri, routing::get};
use serde_json::{Value, json};
use tombolo_testbed::{Cluster, Role, Testbed, eventually};

use crate::{BUDGET, UNKNOWN, findings, run, until_well};

/// Makes an answer out of the nonce that came with a question.
type Liar = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// Serves what a liar says; returns the address.
async fn serve(liar: Liar) -> Result<String> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("http://{}", listener.local_addr()?);
    let answer = async |State(liar): State<Liar>, uri: Uri| {
        let query = uri.query().unwrap_or_default();
        liar(query.strip_prefix("nonce=").unwrap_or_default())
    };
    let routes = Router::new()
        .route("/v1/status", get(answer))
        .with_state(liar);
    tokio::spawn(async move { axum::serve(listener, routes).await });
    Ok(address)
}

/// What `tombolo status` makes of a liar: exit code and findings.
async fn judged(liar: Liar) -> Result<(i32, Vec<String>)> {
    let arguments = [
        "--address".to_owned(),
        serve(liar).await?,
        "-o".to_owned(),
        "json".to_owned(),
    ];
    let output = run(&arguments).await?;
    let json: Value = serde_json::from_slice(&output.stdout)?;
    Ok((output.status.code().unwrap_or_default(), findings(&json)))
}

/// Changes an answer.
type Spoil = fn(&mut Value);

/// Gives the truth with the nonce that is asked for, changed.
fn answering(truth: &Value, spoil: Spoil) -> Liar {
    let truth = truth.clone();
    Arc::new(move |nonce| {
        let mut answer = truth.clone();
        answer["nonce"] = json!(nonce);
        spoil(&mut answer);
        answer.to_string()
    })
}

/// An answer of an operator that is well. As it is, with the right nonce, it is well; so it is a lie that makes the difference.
async fn truth_of(cluster: &Cluster) -> Result<Value> {
    let look = async || -> Result<Value> {
        let page = cluster.role_page(Role::Operator, "/v1/status?nonce=early");
        let truth = serde_json::from_str(&page.await?)?;
        let (code, found) = judged(answering(&truth, |_| ())).await?;
        ensure!(code == 0, "{code}: {found:?}");
        Ok(truth)
    };
    let seen = eventually(BUDGET, "an answer that is well", async || {
        look().await.map_err(|error| format!("{error:#}"))
    });
    Ok(seen.await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_lie_about_a_process_that_is_well_is_taken_for_well() -> Result<()> {
    let testbed = Testbed::start(2).await?;
    testbed.start_mesh().await?;
    let a = testbed.cluster(0);
    until_well(a, &[Role::Operator]).await?;
    let truth = truth_of(a).await?;

    let lies: [(&str, Spoil); 9] = [
        ("an earlier answer", |it| it["nonce"] = json!("early")),
        ("another role", |it| it["role"] = json!("mesh")),
        ("an unknown role", |it| it["role"] = json!("agent")),
        ("no leadership", |it| it["leadership"] = Value::Null),
        ("a store", |it| it["store"] = json!({})),
        ("no peers", |it| it["peers"] = Value::Null),
        ("an API server that answered tomorrow", |it| {
            it["apiServer"]["answeredSecondsAgo"] = json!(-86_400.0);
        }),
        ("a head that was read tomorrow", |it| {
            it["peers"]["peers"][0]["asked"]["ageSeconds"] = json!(-86_400.0);
        }),
        ("no configuration", |it| {
            it["peers"]["configured"] = json!(false);
        }),
    ];
    for (lie, spoil) in lies {
        let (code, found) = judged(answering(&truth, spoil)).await?;
        ensure!(code == UNKNOWN, "{lie}: {code}: {found:?}");
    }

    // Something that keeps the first answer that passed through it, and gives it for ever.
    let kept: Arc<Mutex<Option<String>>> = Arc::default();
    let honest = answering(&truth, |_| ());
    let keeping: Liar = Arc::new(move |nonce| {
        let mut kept = kept.lock().unwrap();
        kept.get_or_insert_with(|| honest(nonce)).clone()
    });
    let address = serve(keeping).await?;
    let arguments = ["--address".to_owned(), address];
    ensure!(run(&arguments).await?.status.code() == Some(0));
    let again = run(&arguments).await?;
    ensure!(again.status.code() == Some(UNKNOWN), "{again:?}");
    Ok(())
}
