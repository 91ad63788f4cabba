//! Has the plugin `kubernetes` serve the ClusterSet's zone.

use super::{
    Refusal, Zones,
    lexer::Token,
    parse::{self, Block, Corefile, Directive},
    zone::Key,
};

/// A Corefile after an edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edited {
    /// The text; the one from before when there was nothing to do.
    pub text: String,
    /// What the user should know of what is there.
    pub notes: Vec<Note>,
}

/// An option that limits what is answered in the ClusterSet's zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Line of the option, from 1, in the text from before.
    pub line: usize,
    /// What it does.
    pub text: &'static str,
}

/// A piece of text to be put in.
#[derive(Debug)]
struct Insertion {
    at: usize,
    text: String,
}

/// Adds the ClusterSet's zone behind the cluster's to each plugin `kubernetes` that serves the latter, and its option
/// `multicluster`. Does nothing where both are there.
pub fn configure(text: &str, zones: &Zones) -> Result<Edited, Refusal> {
    let corefile = parse::parse(text)?;
    refuse_external(&corefile, zones)?;
    let targets = targets(&corefile, zones)?;
    let notes = targets.iter().flat_map(|(_, it)| notes(it)).collect();
    if served_apart(&corefile, zones) {
        return Ok(Edited {
            text: text.to_owned(),
            notes,
        });
    }
    let mut insertions = Vec::new();
    for (block, kubernetes) in &targets {
        refuse_order(kubernetes, zones)?;
        refuse_taken(&corefile, block, zones)?;
        insertions.extend(keys(block, zones));
        insertions.extend(zone(kubernetes, zones));
        insertions.extend(option(text, kubernetes, zones));
    }
    Ok(Edited {
        text: inserted(text, insertions),
        notes,
    })
}

/// Whether CoreDNS reads its Corefile anew when that changes. The plugin `reload` in one server block is enough.
pub fn reloads(text: &str) -> Result<bool, Refusal> {
    let corefile = parse::parse(text)?;
    let blocks = corefile.blocks.iter().chain(&corefile.snippets);
    let mut directives = blocks.flat_map(|it| &it.directives);
    Ok(directives.any(|it| it.name.is("reload")))
}

/// The plugins `kubernetes` that serve the cluster's zone, with their blocks.
pub(super) fn targets<'a>(
    corefile: &'a Corefile,
    zones: &Zones,
) -> Result<Vec<(&'a Block, &'a Directive)>, Refusal> {
    let (mut targets, mut others) = (Vec::new(), Vec::new());
    for block in &corefile.blocks {
        for kubernetes in block
            .directives
            .iter()
            .filter(|it| it.name.is("kubernetes"))
        {
            let written = kubernetes.args.iter();
            if written.clone().any(|it| zones.cluster.is(&it.text)) {
                targets.push((block, kubernetes));
            } else if !kubernetes.args.is_empty() {
                let names: Vec<_> = written.map(|it| it.text.as_str()).collect();
                others.push(format!(
                    "line {} has {}",
                    kubernetes.name.line,
                    names.join(" ")
                ));
            } else if of_keys(block, zones) {
                targets.push((block, kubernetes));
            } else if block
                .keys
                .iter()
                .any(|it| Key::read(&it.text).covers(&zones.cluster))
            {
                return Err(Refusal::NoZones {
                    line: kubernetes.name.line,
                    cluster: zones.cluster.to_string(),
                });
            }
        }
    }
    if targets.is_empty() {
        return Err(not_found(corefile, others, zones));
    }
    Ok(targets)
}

/// Whether the block is for the cluster's zone by name.
fn of_keys(block: &Block, zones: &Zones) -> bool {
    let mut keys = block.keys.iter().map(|it| Key::read(&it.text));
    keys.any(|it| zones.cluster.is(&it.zone))
}

fn not_found(corefile: &Corefile, mut found: Vec<String>, zones: &Zones) -> Refusal {
    let mut snippets = corefile.snippets.iter().flat_map(|it| &it.directives);
    if let Some(kubernetes) = snippets.find(|it| it.name.is("kubernetes")) {
        return Refusal::InSnippet {
            line: kubernetes.name.line,
            zone: zones.clusterset.to_string(),
        };
    }
    let inside = corefile.blocks.iter().flat_map(|it| &it.directives);
    let inside = inside.map(|it| &it.name).filter(|it| it.is("import"));
    for import in corefile.imports.iter().chain(inside) {
        found.push(format!(
            "line {} imports a file, which is not looked into",
            import.line
        ));
    }
    let found = found.join(", ");
    Refusal::NoKubernetes {
        zone: zones.cluster.to_string(),
        found: if found.is_empty() {
            found
        } else {
            format!(" ({found})")
        },
    }
}

fn refuse_external(corefile: &Corefile, zones: &Zones) -> Result<(), Refusal> {
    let mut directives = corefile.blocks.iter().flat_map(|it| &it.directives);
    let external = directives.find(|it| {
        let here = it.args.is_empty() || it.args.iter().any(|it| zones.clusterset.is(&it.text));
        it.name.is("multicluster") && here
    });
    match external {
        Some(it) => Err(Refusal::ExternalPlugin { line: it.name.line }),
        None => Ok(()),
    }
}

/// Whether a block of its own serves the zone.
fn served_apart(corefile: &Corefile, zones: &Zones) -> bool {
    corefile.blocks.iter().any(|block| {
        let mut keys = block.keys.iter().map(|it| Key::read(&it.text));
        let mut kubernetes = block
            .directives
            .iter()
            .filter(|it| it.name.is("kubernetes"));
        keys.any(|it| zones.clusterset.is(&it.zone))
            && kubernetes.any(|it| {
                let foreign = !it.args.iter().any(|arg| zones.cluster.is(&arg.text));
                let named = it.args.iter().any(|arg| zones.clusterset.is(&arg.text));
                foreign && (named || it.args.is_empty()) && has_option(it, zones)
            })
    })
}

fn refuse_order(kubernetes: &Directive, zones: &Zones) -> Result<(), Refusal> {
    let at = |zone: &super::Zone| kubernetes.args.iter().position(|it| zone.is(&it.text));
    match (at(&zones.cluster), at(&zones.clusterset)) {
        (Some(cluster), Some(clusterset)) if clusterset < cluster => Err(Refusal::Order {
            line: kubernetes.name.line,
            zone: zones.clusterset.to_string(),
            cluster: zones.cluster.to_string(),
        }),
        _ => Ok(()),
    }
}

/// Refuses when another block, which listens where this one does, is for a smaller part that has the zone in it.
fn refuse_taken(corefile: &Corefile, block: &Block, zones: &Zones) -> Result<(), Refusal> {
    let own: Vec<_> = block.keys.iter().map(|it| Key::read(&it.text)).collect();
    let others = corefile
        .blocks
        .iter()
        .filter(|it| it.open.start != block.open.start);
    let others: Vec<_> = others.flat_map(|it| &it.keys).collect();
    for key in own.iter().filter(|it| it.covers(&zones.cluster)) {
        let same = own.iter().filter(|it| it.listens() == key.listens());
        let covering = same.filter(|it| it.covers(&zones.clusterset));
        let depth = covering.map(Key::depth).max();
        for other in &others {
            let theirs = Key::read(&other.text);
            // Without a key that covers the zone this block gets one that says exactly it.
            let closer = depth.map_or_else(
                || zones.clusterset.is(&theirs.zone),
                |own| theirs.covers(&zones.clusterset) && theirs.depth() > own,
            );
            if closer && theirs.listens() == key.listens() {
                return Err(Refusal::Taken {
                    line: other.line,
                    zone: zones.clusterset.to_string(),
                });
            }
        }
    }
    Ok(())
}

/// Keys for the ClusterSet's zone, behind each of the cluster's that does not have it in it.
fn keys(block: &Block, zones: &Zones) -> Vec<Insertion> {
    let read = |it: &Token| Key::read(&it.text);
    let all: Vec<_> = block.keys.iter().map(read).collect();
    let covered = |listens| {
        all.iter()
            .any(|it| it.listens() == listens && it.covers(&zones.clusterset))
    };
    let own = block
        .keys
        .iter()
        .zip(&all)
        .filter(|(_, key)| key.covers(&zones.cluster) && !covered(key.listens()));
    let insertions = own.map(|(token, key)| {
        let scheme = if key.scheme.is_empty() {
            String::new()
        } else {
            format!("{}://", key.scheme)
        };
        let port = if key.port.is_empty() {
            String::new()
        } else {
            format!(":{}", key.port)
        };
        let comma = token.text.len() - token.text.trim_end_matches(',').len();
        Insertion {
            at: token.end - comma,
            text: format!(" {scheme}{}{port}", zones.clusterset),
        }
    });
    insertions.collect()
}

/// The zone, behind the cluster's.
fn zone(kubernetes: &Directive, zones: &Zones) -> Option<Insertion> {
    let args = &kubernetes.args;
    // Without zones of its own the plugin has those of the block.
    let cluster = args.iter().find(|it| zones.cluster.is(&it.text))?;
    let there = args.iter().any(|it| zones.clusterset.is(&it.text));
    (!there).then(|| Insertion {
        at: cluster.end,
        text: format!(" {}", zones.clusterset),
    })
}

pub(super) fn has_option(kubernetes: &Directive, zones: &Zones) -> bool {
    let mut options = kubernetes
        .options()
        .iter()
        .filter(|it| it[0].is("multicluster"));
    options.any(|it| it[1..].iter().any(|zone| zones.clusterset.is(&zone.text)))
}

/// The option, as the first one, or the zone in the option that is there.
fn option(text: &str, kubernetes: &Directive, zones: &Zones) -> Option<Insertion> {
    if has_option(kubernetes, zones) {
        return None;
    }
    let zone = &zones.clusterset;
    let indent = indent(text, kubernetes.name.start);
    let end = line_end(text, kubernetes.name.start);
    let Some(body) = &kubernetes.body else {
        return Some(Insertion {
            at: kubernetes.last().end,
            text: format!(" {{{end}{indent}    multicluster {zone}{end}{indent}}}"),
        });
    };
    let mut options = body.options.iter().filter(|it| it[0].is("multicluster"));
    if let Some(last) = options.next().and_then(|it| it.last()) {
        return Some(Insertion {
            at: last.end,
            text: format!(" {zone}"),
        });
    }
    let inner = body
        .options
        .first()
        .map(|it| self::indent(text, it[0].start));
    let inner = inner.map_or_else(|| format!("{indent}    "), str::to_owned);
    let line = text[body.open.end..]
        .find('\n')
        .map(|it| body.open.end + it + 1);
    Some(Insertion {
        at: line.unwrap_or(body.open.end),
        text: format!("{inner}multicluster {zone}{end}"),
    })
}

/// The blanks at the beginning of the line of a place.
fn indent(text: &str, at: usize) -> &str {
    let begin = text[..at].rfind('\n').map_or(0, |it| it + 1);
    let line = &text[begin..at];
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// How the line of a place ends.
fn line_end(text: &str, at: usize) -> &'static str {
    let end = text[at..].find('\n').map_or(text.len(), |it| at + it);
    if text[..end].ends_with('\r') {
        "\r\n"
    } else {
        "\n"
    }
}

fn inserted(text: &str, mut insertions: Vec<Insertion>) -> String {
    insertions.sort_by_key(|it| it.at);
    let mut edited = String::with_capacity(text.len() + 64);
    let mut done = 0;
    for insertion in insertions {
        edited.push_str(&text[done..insertion.at]);
        edited.push_str(&insertion.text);
        done = insertion.at;
    }
    edited + &text[done..]
}

/// Options that CoreDNS applies to the ClusterSet's zone as well, or in its own way.
fn notes(kubernetes: &Directive) -> Vec<Note> {
    let note = |option: &Vec<Token>| {
        let text = match (
            option[0].text.as_str(),
            option.get(1).map(|it| it.text.as_str()),
        ) {
            ("namespaces", _) => {
                "`namespaces`: names of other namespaces are not answered in the ClusterSet's zone either"
            }
            ("labels", _) => {
                "`labels`: CoreDNS asks for them on imported EndpointSlices too, so that headless services without them have no addresses"
            }
            ("namespace_labels", _) => {
                "`namespace_labels`: CoreDNS looks for them on ServiceImports, so that imports without them do not exist"
            }
            ("ignore", Some("empty_service")) => {
                "`ignore empty_service`: services without a ready backend do not exist, as in the cluster's zone"
            }
            _ => return None,
        };
        Some(Note {
            line: option[0].line,
            text,
        })
    };
    kubernetes.options().iter().filter_map(note).collect()
}
