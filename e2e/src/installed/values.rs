//! Values of the chart for the clusters of a testbed. Pure.

use anyhow::{Context as _, Result};
use serde_json::Value;

/// Port of the nodes at which peers reach a cluster's etcd: `clustermesh.apiserver.service.nodePort` of the chart.
pub const STORE_PORT: u16 = 32379;

/// What a cluster is installed with: who it is, and the image `REPOSITORY:TAG` of Tombolo.
pub fn of_cluster(name: &str, id: u32, image: &str) -> String {
    let (repository, tag) = image.rsplit_once(':').unwrap_or((image, "latest"));
    format!(
        "cluster: {{name: {name}, id: {id}}}\nimage: {{repository: {repository}, tag: {tag}}}\n"
    )
}

/// Values by which an upgrade replaces every pod: an annotation that all of them get.
pub fn that_roll(mark: &str) -> String {
    format!(
        "operator: {{podAnnotations: {{tombolo.test/mark: \"{mark}\"}}}}\n\
         clustermesh: {{apiserver: {{podAnnotations: {{tombolo.test/mark: \"{mark}\"}}}}}}\n"
    )
}

/// The image of etcd that the chart names, from the text of its `values.yaml`.
pub fn etcd_image(chart_values: &str) -> Result<String> {
    let values: Value = serde_saphyr::from_str(chart_values)?;
    let image = &values["clustermesh"]["apiserver"]["etcd"]["image"];
    let member = |name: &str| {
        let text = image[name].as_str();
        text.with_context(|| format!("values.yaml: clustermesh.apiserver.etcd.image.{name}"))
    };
    Ok(format!("{}:{}", member("repository")?, member("tag")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Value {
        serde_saphyr::from_str(text).unwrap()
    }

    #[test]
    fn a_cluster_is_told_who_it_is_and_which_image_it_runs() {
        let values = parse(&of_cluster("a", 1, "registry.example:5000/tombolo:testbed"));

        assert_eq!(values["cluster"]["id"], 1);
        assert_eq!(
            values["image"]["repository"],
            "registry.example:5000/tombolo"
        );
        assert_eq!(values["image"]["tag"], "testbed");
    }

    #[test]
    fn the_port_and_the_image_of_etcd_are_those_of_the_chart() {
        let chart = include_str!("../../../chart/values.yaml");
        let service = &parse(chart)["clustermesh"]["apiserver"]["service"];

        assert_eq!(service["nodePort"], STORE_PORT);
        assert!(
            etcd_image(chart)
                .unwrap()
                .starts_with("registry.k8s.io/etcd:3.")
        );
        assert!(etcd_image("clustermesh: {}").is_err());
    }
}
