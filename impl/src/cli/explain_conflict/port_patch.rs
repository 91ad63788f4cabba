//! The JSON patch (RFC 6902) that gives a Service the ports it should have.
//!
//! Ports that stay keep what only their cluster knows of them: target port, node port. Pure.

use serde_json::{Value, json};
use tombolo_core::service::ServicePort;

/// Operations on `/spec/ports` that turn `have` into `want`, whose names and numbers are unique.
pub(super) fn port_patch(have: &[ServicePort], want: &[ServicePort]) -> Vec<Value> {
    let mut have = have.to_vec();
    let mut operations = Vec::new();
    for (index, wanted) in want.iter().enumerate() {
        let rest = have.get(index..).unwrap_or_default();
        if let Some(offset) = best_match(rest, wanted, &want[index + 1..]) {
            if offset > 0 {
                let from = path(index + offset, "");
                operations.push(json!({"op": "move", "from": from, "path": path(index, "")}));
                let moved = have.remove(index + offset);
                have.insert(index, moved);
            }
            change(&have[index], wanted, index, &mut operations);
            have[index].clone_from(wanted);
        } else {
            operations.push(json!({"op": "add", "path": path(index, ""), "value": entry(wanted)}));
            have.insert(index, wanted.clone());
        }
    }
    for index in (want.len()..have.len()).rev() {
        operations.push(json!({"op": "remove", "path": path(index, "")}));
    }
    operations
}

fn path(index: usize, field: &str) -> String {
    format!("/spec/ports/{index}{field}")
}

/// The entry that becomes the wanted port: the same one, or the one of its name, or the one of its number, unless that is
/// wanted under its own name too.
fn best_match(rest: &[ServicePort], wanted: &ServicePort, later: &[ServicePort]) -> Option<usize> {
    let number = |port: &ServicePort| (port.protocol, port.port);
    let find = |is: &dyn Fn(&ServicePort) -> bool| rest.iter().position(is);
    find(&|port| port.name == wanted.name && number(port) == number(wanted))
        .or_else(|| find(&|port| port.name == wanted.name))
        .or_else(|| {
            find(&|port| {
                number(port) == number(wanted) && later.iter().all(|it| it.name != port.name)
            })
        })
}

fn change(from: &ServicePort, to: &ServicePort, index: usize, operations: &mut Vec<Value>) {
    // `add` on a member of an object replaces it too.
    let mut set = |field: &str, value: Value| {
        operations.push(json!({"op": "add", "path": path(index, field), "value": value}));
    };
    if from.name != to.name {
        set("/name", json!(to.name.as_str()));
    }
    if from.protocol != to.protocol {
        set("/protocol", json!(to.protocol.as_str()));
    }
    if from.port != to.port {
        set("/port", json!(to.port));
    }
    match (stated(from), stated(to)) {
        (before, Some(now)) if before != Some(now) => set("/appProtocol", json!(now)),
        (Some(_), None) => {
            operations.push(json!({"op": "remove", "path": path(index, "/appProtocol")}));
        }
        _ => {}
    }
}

fn entry(port: &ServicePort) -> Value {
    let mut entry = json!({"port": port.port, "protocol": port.protocol.as_str()});
    if !port.name.is_unnamed() {
        entry["name"] = json!(port.name.as_str());
    }
    if let Some(app_protocol) = stated(port) {
        entry["appProtocol"] = json!(app_protocol);
    }
    entry
}

fn stated(port: &ServicePort) -> Option<&str> {
    port.app_protocol.as_deref().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use tombolo_core::service::Protocol;

    use super::*;

    /// `name number[/app protocol]`, comma-separated.
    fn ports(text: &str) -> Vec<ServicePort> {
        let port = |text: &str| {
            let (name, number) = text.split_once(' ').unwrap();
            let (number, app_protocol) = match number.split_once('/') {
                Some((number, app_protocol)) => (number, Some(app_protocol.to_owned())),
                None => (number, None),
            };
            ServicePort {
                name: name.try_into().unwrap(),
                protocol: Protocol::Tcp,
                app_protocol,
                port: number.parse().unwrap(),
            }
        };
        text.split(',')
            .filter(|text| !text.is_empty())
            .map(port)
            .collect()
    }

    /// Carries operations out on a list of ports, as RFC 6902 says.
    fn carry_out(list: &mut Vec<Value>, operations: &[Value]) {
        let place = |operation: &Value, member: &str| {
            let path = operation[member].as_str().unwrap();
            let mut parts = path.strip_prefix("/spec/ports/").unwrap().split('/');
            let index: usize = parts.next().unwrap().parse().unwrap();
            (index, parts.next().map(str::to_owned))
        };
        for operation in operations {
            let (index, field) = place(operation, "path");
            match (operation["op"].as_str().unwrap(), field) {
                ("add", None) => list.insert(index, operation["value"].clone()),
                ("add", Some(field)) => list[index][field] = operation["value"].clone(),
                ("remove", None) => drop(list.remove(index)),
                ("remove", Some(field)) => {
                    let entry = list[index].as_object_mut().unwrap();
                    entry
                        .remove(&field)
                        .expect("what is removed has to be there");
                }
                ("move", None) => {
                    let moved = list.remove(place(operation, "from").0);
                    list.insert(index, moved);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[rstest]
    #[case::the_same("http 80", "http 80", 0)]
    #[case::another_number("http 81", "http 80", 1)]
    #[case::another_name("web 80", "http 80", 1)]
    #[case::another_app_protocol("http 80/h2c", "http 80/http", 1)]
    #[case::no_app_protocol("http 80/h2c", "http 80", 1)]
    #[case::one_is_missing("http 80", "http 80,dns 53", 1)]
    #[case::one_is_too_many("http 80,dns 53", "http 80", 1)]
    #[case::another_order("dns 53,http 80", "http 80,dns 53", 1)]
    #[case::swapped_numbers("http 81,admin 80", "http 80,admin 81", 2)]
    #[case::all_at_once("a 1,b 2/x,c 3", "c 4,d 1,b 2,e 9", 5)]
    #[case::nothing_there("", "http 80", 1)]
    fn the_operations_give_the_ports_that_are_wanted(
        #[case] have: &str,
        #[case] want: &str,
        #[case] count: usize,
    ) {
        let (have, want) = (ports(have), ports(want));
        let mut list: Vec<_> = have.iter().map(entry).collect();

        let operations = port_patch(&have, &want);
        carry_out(&mut list, &operations);

        assert_eq!(list, want.iter().map(entry).collect::<Vec<_>>());
        assert_eq!(operations.len(), count, "{operations:?}");
    }

    #[test]
    fn a_port_that_gets_another_number_keeps_its_target() {
        let (have, want) = (ports("http 81"), ports("http 80"));
        let mut list = vec![json!({"name": "http", "port": 81, "targetPort": 8080})];

        carry_out(&mut list, &port_patch(&have, &want));

        assert_eq!(
            list,
            [json!({"name": "http", "port": 80, "targetPort": 8080})]
        );
    }
}
