//! Imports as texts, and which ones a case accepts. Pure.

use tombolo_api::v1beta1::ServiceImport;

/// Accepts imports of that type.
pub fn of_type(wanted: &'static str) -> impl Fn(&ServiceImport) -> Result<(), String> {
    move |import| {
        if import.spec.type_ == wanted {
            return Ok(());
        }
        Err(describe(import))
    }
}

/// Ports as texts in one order, to compare: `tcp 42/TCP`.
pub fn port_texts(import: &ServiceImport) -> Vec<String> {
    let text = |port: &tombolo_api::v1beta1::ServicePort| {
        let name = port.name.as_deref().unwrap_or_default();
        let protocol = port.protocol.as_deref().unwrap_or("(no protocol)");
        let app = port.app_protocol.as_deref().unwrap_or_default();
        format!("{name} {}/{protocol} {app}", port.port)
            .trim()
            .to_owned()
    };
    let mut texts: Vec<_> = import.spec.ports.iter().map(text).collect();
    texts.sort();
    texts
}

/// Accepts imports with exactly those ports, in any order.
pub fn with_ports(mut wanted: Vec<String>) -> impl Fn(&ServiceImport) -> Result<(), String> {
    wanted.sort();
    move |import| {
        if port_texts(import) == wanted {
            return Ok(());
        }
        Err(describe(import))
    }
}

/// An import in one line.
pub fn describe(import: &ServiceImport) -> String {
    let status = import.status.clone().unwrap_or_default();
    let clusters: Vec<_> = status
        .clusters
        .unwrap_or_default()
        .into_iter()
        .map(|entry| entry.cluster)
        .collect();
    format!(
        "a ServiceImport of type {}, ports {:?}, ips {:?}, families {:?}, clusters {:?}",
        import.spec.type_,
        port_texts(import),
        import.spec.ips.clone().unwrap_or_default(),
        import.spec.ip_families.clone().unwrap_or_default(),
        clusters
    )
}
