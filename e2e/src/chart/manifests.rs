//! What a chart renders to: objects, and the parts of them that rules are about.

use std::{collections::BTreeSet, fmt::Write as _};

use serde_json::Value;

use super::helm::Error;

/// Longer texts without blanks are certificates and keys, which are other ones each time.
const LONGEST_PLAIN: usize = 200;

/// Rendered objects, in helm's order.
#[derive(Debug, Clone)]
pub struct Manifests {
    objects: Vec<Value>,
}

/// One rule of a Role or ClusterRole.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Name of the role.
    pub role: String,
    /// The rule.
    pub rule: Value,
}

impl Manifests {
    /// Reads what helm printed.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let values: Vec<Value> =
            serde_saphyr::from_multiple(text).map_err(|source| Error::Yaml(Box::new(source)))?;
        let objects = values.into_iter().filter(|value| !value.is_null());
        Ok(Self {
            objects: objects.collect(),
        })
    }

    /// All objects.
    pub fn all(&self) -> &[Value] {
        &self.objects
    }

    /// The objects of a kind.
    pub fn of_kind(&self, kind: &str) -> Vec<&Value> {
        let of_kind = |object: &&Value| object["kind"] == kind;
        self.objects.iter().filter(of_kind).collect()
    }

    /// One object.
    pub fn get(&self, kind: &str, name: &str) -> Option<&Value> {
        let objects = self.of_kind(kind).into_iter();
        objects.into_iter().find(|object| name_of(object) == name)
    }

    /// Every rule of every role.
    pub fn rules(&self) -> Vec<Rule> {
        let roles = ["Role", "ClusterRole"];
        let roles = roles.iter().flat_map(|kind| self.of_kind(kind));
        roles
            .flat_map(|role| {
                list(&role["rules"]).iter().map(|rule| Rule {
                    role: name_of(role).to_owned(),
                    rule: rule.clone(),
                })
            })
            .collect()
    }

    /// The objects that `base` does not have like this, as text; then the names of those that only `base` has. What differs at
    /// each call is masked.
    pub fn beyond(&self, base: Option<&Self>) -> String {
        let known: BTreeSet<String> = base
            .iter()
            .flat_map(|base| &base.objects)
            .map(masked)
            .collect();
        let own = self.objects.iter().map(masked);
        let own = own.filter(|object| !known.contains(object));
        let gone = base.iter().flat_map(|base| &base.objects);
        let gone = gone.filter(|object| self.get(kind_of(object), name_of(object)).is_none());
        let mut text = String::new();
        for object in own {
            text += "---\n";
            text += &object;
        }
        for object in gone {
            let (kind, name) = (kind_of(object), name_of(object));
            let _ = writeln!(text, "--- # not here: {kind} {name}");
        }
        text
    }
}

impl Rule {
    /// The texts of a member, such as `verbs`.
    pub fn texts(&self, member: &str) -> Vec<&str> {
        texts(&self.rule[member])
    }
}

/// The name of an object.
pub fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// The kind of an object.
pub fn kind_of(object: &Value) -> &str {
    object["kind"].as_str().unwrap_or_default()
}

/// The members of a list; none when it is not there.
pub fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The texts of a list.
pub fn texts(value: &Value) -> Vec<&str> {
    list(value).iter().filter_map(Value::as_str).collect()
}

fn masked(object: &Value) -> String {
    let mut object = object.clone();
    mask(&mut object);
    serde_saphyr::to_string(&object).unwrap_or_else(|error| format!("# not YAML: {error}\n"))
}

fn mask(value: &mut Value) {
    match value {
        Value::String(text) => {
            let hash = text.len() == 64 && text.chars().all(|c| c.is_ascii_hexdigit());
            if hash {
                "<SHA-256>".clone_into(text);
            } else if text.len() > LONGEST_PLAIN && !text.contains(' ') {
                "<PEM>".clone_into(text);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(mask),
        Value::Object(members) => {
            if let Some(expires) = members.get_mut("tombolo/expires") {
                *expires = Value::String("<TIME>".to_owned());
            }
            members.values_mut().for_each(mask);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
