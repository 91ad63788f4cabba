//! What can be done to a kind cluster: commands on its node, pods cut from pods, and signals to the processes of Kubernetes.

use super::{KindCluster, KindError};
use crate::{Component, Error, command::Invocation, local::links, wait::eventually};

impl KindCluster {
    /// A command on the node.
    pub(crate) fn command(&self, program: &str, arguments: &[&str]) -> Invocation {
        let words = ["exec", "--interactive", &self.node, program];
        self.ground
            .tools
            .engine
            .docker(&[&words[..], arguments].concat())
    }

    /// Drops what pods of the two clusters send to each other, on this node.
    pub(crate) async fn cut_pods(&self, other: &Self) -> Result<(), Error> {
        let table = links::table_name(&other.plane.name);
        let rules = links::cut(&table, other.plane.network);
        self.command("nft", &["-f", "-"])
            .input(&rules)
            .succeed()
            .await?;
        Ok(())
    }

    /// Undoes [`Self::cut_pods`].
    pub(crate) async fn heal_pods(&self, other: &Self) -> Result<(), Error> {
        let table = links::table_name(&other.plane.name);
        self.command("nft", &["delete", "table", "inet", &table])
            .succeed()
            .await?;
        Ok(())
    }

    /// Sends a signal, such as `KILL`, to a process of Kubernetes. What ends, kubelet or systemd starts again.
    pub(crate) fn signal(&self, component: Component, signal: &'static str) -> Result<(), Error> {
        let failed = |why: String| KindError::Signal {
            node: self.node.clone(),
            signal,
            component,
            why,
        };
        let option = format!("-{signal}");
        let words = ["exec", &self.node, "pkill", &option, "-x", name(component)];
        let output = self.ground.tools.engine.docker_now(&words);
        let output = output.map_err(|error| failed(error.to_string()))?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        Err(failed(format!("{}: {}", output.status, text.trim())).into())
    }

    /// Kills a process of Kubernetes and waits until another has taken its place and the API server answers.
    pub(crate) async fn restart(&self, component: Component) -> Result<(), Error> {
        let pid = async || {
            let found = self
                .command("pgrep", &["-o", "-x", name(component)])
                .run()
                .await;
            found.map(|it| it.stdout).map_err(|error| error.to_string())
        };
        let before = pid().await.unwrap_or_default();
        self.signal(component, "KILL")?;
        let what = format!(
            "{component} on {} is another, and the API server answers",
            self.node
        );
        let again = eventually(super::READY_BUDGET, &what, async || {
            let now = pid().await?;
            if now.is_empty() || now == before {
                return Err("the process is not there".to_owned());
            }
            self.api_server().look().await
        });
        again.await.map_err(|source| self.not_ready(source))
    }
}

/// The name of a process as the kernel has it: 15 bytes.
fn name(component: Component) -> &'static str {
    let name = component.as_str();
    name.get(..15).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_named_as_the_kernel_names_them() {
        assert_eq!(name(Component::Etcd), "etcd");
        assert_eq!(name(Component::ControllerManager), "kube-controller");
    }
}
