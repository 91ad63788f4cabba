//! One-sided, with files instead of the other side's kubeconfig.

use std::{fs, path::Path};

use anyhow::{Result, ensure};
use tombolo_e2e::chart::Helm;
use tombolo_testbed::Testbed;

use super::{
    A, B,
    command::{endpoints, install, is_private, remove, run, words, written},
};

pub(crate) async fn by_files(testbed: &Testbed) -> Result<()> {
    let helm = Helm::find()?;
    let a = install(testbed, &helm, A, "").await?;
    let b = install(testbed, &helm, B, "").await?;
    let directory = tempfile::tempdir()?;
    let file = |name: &str| directory.path().join(name).display().to_string();
    no_file_is_put_where_none_belongs(testbed, directory.path()).await?;
    let (of_a, of_b) = (file("a-for-b.yaml"), file("b-for-a.yaml"));
    let (at_a, at_b) = (endpoints(testbed, &[A])?, endpoints(testbed, &[B])?);

    let invite = [
        "connect",
        "a",
        "--invite",
        "b",
        "--file",
        &of_a,
        "--no-wait",
    ];
    run(testbed, &words(&invite, &at_a))
        .await?
        .expect(0, &["hand it over"])?;
    ensure!(is_private(of_a.as_ref())?);
    run(testbed, &words(&invite, &at_a))
        .await?
        .expect(2, &["exists", "--overwrite"])?;
    let both = [
        "connect",
        "b",
        "--accept",
        &of_a,
        "--invite",
        "a",
        "--file",
        &of_b,
        "--no-wait",
    ];
    run(testbed, &words(&both, &at_b))
        .await?
        .expect(0, &["+ Secret cilium-kvstoremesh: a: "])?;
    let accept = ["connect", "a", "--accept", &of_b, "--no-wait"];
    run(testbed, &accept)
        .await?
        .expect(0, &["+ Secret cilium-clustermesh: b: "])?;

    // With both kubeconfigs nothing is left to do.
    let places = endpoints(testbed, &[A, B])?;
    let connect = ["connect", "a", "b", "--no-wait"];
    run(testbed, &words(&connect, &places))
        .await?
        .expect(0, &["nothing had to be changed"])?;

    let before = written(&a).await?;
    damaged_ones_are_refused(testbed, &of_b).await?;
    ensure!(written(&a).await? == before);

    let alone = ["disconnect", "a", "--peer", "b", "--no-wait"];
    run(testbed, &alone).await?.expect(0, &["written"])?;
    ensure!(written(&a).await?.len() == 1);
    remove(&a).await?;
    remove(&b).await
}

/// Before anybody is let in.
async fn no_file_is_put_where_none_belongs(testbed: &Testbed, directory: &Path) -> Result<()> {
    let nowhere = directory.join("missing/of-b.yaml").display().to_string();
    for (file, says) in [
        (nowhere.as_str(), "there is no directory"),
        ("/dev/null", "is there, and no file"),
    ] {
        let invite = [
            "connect",
            "b",
            "--invite",
            "a",
            "--overwrite",
            "--file",
            file,
        ];
        run(testbed, &invite).await?.expect(2, &[says])?;
    }
    Ok(())
}

/// An invitation to a that says something else in one place.
async fn damaged_ones_are_refused(testbed: &Testbed, file: &str) -> Result<()> {
    let accept = ["connect", "a", "--accept", file, "--no-wait"];
    let text = fs::read_to_string(file)?;
    for (from, to, says) in [
        ("cluster: b\n", "cluster: a\n", "for"),
        ("id: 2\n", "id: 1\n", "both have id 1"),
        ("id: 2\n", "id: 999\n", "id 999: expected 1 to 255"),
        (
            "for: a\n",
            "for: c\n",
            "certificate: is for remote-a, not for remote-c",
        ),
        ("cluster: b\n", "cluster: ../b\n", "(the whole file)"),
        ("id: 2\n", "id: 2\nmore: 1\n", "more"),
        ("BEGIN CERTIFICATE", "BEGIN NOTHING", "ca: "),
    ] {
        ensure!(text.contains(from), "{from}");
        fs::write(file, text.replacen(from, to, 1))?;
        let refused = run(testbed, &accept).await?;
        let refused = refused.expect(2, &[says])?;
        ensure!(!refused.stderr.contains("PRIVATE"), "{}", refused.stderr);
    }
    Ok(())
}
