//! What can be done to a kind cluster: commands on its node, pods cut from pods and from ports, and signals to the processes of Kubernetes.

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
        self.nft(&["-f", "-"], &rules).await
    }

    /// Undoes [`Self::cut_pods`].
    pub(crate) async fn heal_pods(&self, other: &Self) -> Result<(), Error> {
        let table = links::table_name(&other.plane.name);
        self.nft(&["delete", "table", "inet", &table], "").await
    }

    /// Drops what pods of this cluster send to a TCP port of the other's node, and the answers, on this node.
    pub(crate) async fn cut_port(&self, other: &Self, port: u16) -> Result<(), Error> {
        let table = links::port_table_name(&other.plane.name, port);
        let rules = links::cut_port(&table, other.addresses().await?, port);
        self.nft(&["-f", "-"], &rules).await
    }

    /// Undoes [`Self::cut_port`].
    pub(crate) async fn heal_port(&self, other: &Self, port: u16) -> Result<(), Error> {
        let table = links::port_table_name(&other.plane.name, port);
        self.nft(&["delete", "table", "inet", &table], "").await
    }

    async fn nft(&self, arguments: &[&str], input: &str) -> Result<(), Error> {
        let nft = self.command("nft", arguments).input(input);
        nft.succeed().await?;
        Ok(())
    }

    /// Sends a signal, such as `KILL`, to a process of Kubernetes. What ends, kubelet or systemd starts again.
    pub(crate) fn signal(&self, component: Component, signal: &'static str) -> Result<(), Error> {
        if self.send(component, signal)? {
            return Ok(());
        }
        let why = "there is no such process now".to_owned();
        Err(self.not_signalled(component, signal, why).into())
    }

    /// The same; tells whether there was a process.
    fn send(&self, component: Component, signal: &'static str) -> Result<bool, Error> {
        let failed = |why: String| Error::from(self.not_signalled(component, signal, why));
        let option = format!("-{signal}");
        let mut words = vec!["exec", &self.node, "pkill", &option];
        words.extend(process(component));
        let output = self.ground.tools.engine.docker_now(&words);
        let output = output.map_err(|error| failed(error.to_string()))?;
        match output.status.code() {
            Some(0) => Ok(true),
            Some(NONE_FOUND) => Ok(false),
            Some(_) | None => {
                let text = String::from_utf8_lossy(&output.stderr);
                Err(failed(format!("{}: {}", output.status, text.trim())))
            }
        }
    }

    fn not_signalled(&self, component: Component, signal: &'static str, why: String) -> KindError {
        KindError::Signal {
            node: self.node.clone(),
            signal,
            component,
            why,
        }
    }

    /// Kills a process of Kubernetes, if it runs, and waits until another has taken its place and the API server answers.
    pub(crate) async fn restart(&self, component: Component) -> Result<(), Error> {
        let pid = async || {
            let found = self.command("pgrep", &process(component)).run().await;
            found.map(|it| it.stdout).map_err(|error| error.to_string())
        };
        let before = pid().await.unwrap_or_default();
        self.send(component, "KILL")?;
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

/// Exit code of `pkill` that found no process.
const NONE_FOUND: i32 = 1;

/// What `pkill` and `pgrep` are told to find the process of a component: it is root's, and pods of the mesh, which have an etcd
/// too, are not.
fn process(component: Component) -> [&'static str; 4] {
    ["-u", "0", "-x", name(component)]
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

    /// Else the etcd of the mesh, in a pod of the same node, would end with that of the API server.
    #[test]
    fn only_processes_of_root_are_of_kubernetes() {
        assert_eq!(process(Component::Etcd), ["-u", "0", "-x", "etcd"]);
    }
}
