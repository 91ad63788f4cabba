//! Which images nodes have: what pods need anyway, those that the upstream conformance suite names, Tombolo's own, and the
//! etcd of its chart.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::json;

use super::{
    config::PAUSE_IMAGE,
    image::{self, Image},
};
use crate::{Error, api::in_file, assets::NodeAssets, command::Invocation};

/// Cluster DNS.
pub(super) const COREDNS_IMAGE: &str = "registry.k8s.io/coredns/coredns:v1.15.0";

/// What the upstream suite runs: a server with socat, and a client with nc and nslookup. One image has all of it.
const WORKLOAD_IMAGES: [&str; 2] = ["alpine/socat:1.7.4.4", "nicolaka/netshoot:v0.15"];

/// Tombolo's image, as [`crate::Cluster::load_tombolo`] makes it.
pub(crate) const TOMBOLO_IMAGE: &str = "tombolo:testbed";

/// User of Tombolo's image, as in distroless images.
const NONROOT: &str = "65532:65532";

/// Makes the archive of the images that every node has.
pub(super) async fn base(directory: &Path, assets: &NodeAssets) -> Result<PathBuf, Error> {
    fs::create_dir_all(directory).map_err(in_file(directory))?;
    let pause = json!({ "Entrypoint": ["/pause"] });
    let pause = Image::new(directory, assets, &[PAUSE_IMAGE], pause)?;
    pause.add_program(&assets.binary("pause"), "/pause").await?;
    let coredns = json!({ "Entrypoint": ["/coredns"] });
    let coredns = Image::new(directory, assets, &[COREDNS_IMAGE], coredns)?;
    coredns
        .add_program(&assets.binary("coredns"), "/coredns")
        .await?;
    let workload = workload(directory, assets).await?;
    image::archive(directory, &[pause, coredns, workload]).await
}

async fn workload(directory: &Path, assets: &NodeAssets) -> Result<Image, Error> {
    let config = json!({ "Cmd": ["/bin/sh"] });
    let image = Image::new(directory, assets, &WORKLOAD_IMAGES, config)?;
    // busybox' own sh would run its own nc and nslookup, which are not the ones that are asked for.
    let programs = [
        ("dash", "/bin/sh"),
        ("socat", "/usr/bin/socat"),
        ("nc.openbsd", "/usr/bin/nc"),
        ("nslookup", "/usr/bin/nslookup"),
        ("busybox", "/bin/busybox"),
    ];
    for (program, path) in programs {
        image.add_program(&assets.program(program), path).await?;
    }
    let busybox = assets.program("busybox");
    let applets = Invocation::new(&[], &busybox, &["--list"])
        .succeed()
        .await?;
    for applet in String::from_utf8_lossy(&applets.stdout).lines() {
        image.add_link("/bin/busybox", &format!("/bin/{applet}"))?;
    }
    image.add_text("/etc/passwd", "root:x:0:0:root:/:/bin/sh\n")?;
    Ok(image)
}

/// Makes the archive of the workload images alone.
pub(crate) async fn workload_archive(
    directory: &Path,
    assets: &NodeAssets,
) -> Result<PathBuf, Error> {
    fs::create_dir_all(directory).map_err(in_file(directory))?;
    image::archive(directory, &[workload(directory, assets).await?]).await
}

/// Makes the archive of Tombolo's image from this binary.
pub(crate) async fn tombolo(
    directory: &Path,
    assets: &NodeAssets,
    binary: &Path,
) -> Result<PathBuf, Error> {
    fs::create_dir_all(directory).map_err(in_file(directory))?;
    let config = json!({ "Entrypoint": ["/usr/local/bin/tombolo"], "User": NONROOT });
    let image = Image::new(directory, assets, &[TOMBOLO_IMAGE], config)?;
    image.add_program(binary, "/usr/local/bin/tombolo").await?;
    image.add_text("/etc/passwd", "nonroot:x:65532:65532:nonroot:/:\n")?;
    image::archive(directory, &[image]).await
}

/// Makes the archive of an image with etcd, from this binary.
pub(crate) async fn etcd(
    directory: &Path,
    assets: &NodeAssets,
    name: &str,
    binary: &Path,
) -> Result<PathBuf, Error> {
    fs::create_dir_all(directory).map_err(in_file(directory))?;
    let config = json!({ "Entrypoint": ["etcd"] });
    let image = Image::new(directory, assets, &[name], config)?;
    image.add_program(binary, "/usr/local/bin/etcd").await?;
    image::archive(directory, &[image]).await
}
