//! The cache on nodes, NodeLocal DNS: a Corefile of its own, which forwards the cluster's zone to the cluster's DNS and
//! everything else out of the cluster. The ClusterSet's zone has to go the way of the cluster's.

use super::{
    Edited, Refusal, Zones,
    parse::{self, Block, Corefile},
    undo::without,
    zone::Key,
};

/// Where names go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forwarding {
    /// Those in the cluster's zone.
    pub cluster: String,
    /// Those in the ClusterSet's zone.
    pub clusterset: String,
    /// Those of no block of their own.
    pub others: String,
}

/// Adds a server block for the ClusterSet's zone that is a copy of the cluster's, without what can be in one block only. Gives
/// besides where names went before.
pub fn configure_node_local(text: &str, zones: &Zones) -> Result<(Edited, Forwarding), Refusal> {
    let corefile = parse::parse(text)?;
    let cluster = block_of(&corefile, zones.cluster.as_str());
    let forwarding = Forwarding {
        cluster: cluster.map_or_else(|| "nowhere".to_owned(), target),
        clusterset: block_for(&corefile, zones).map_or_else(|| "nowhere".to_owned(), target),
        others: block_of(&corefile, ".").map_or_else(|| "nowhere".to_owned(), target),
    };
    let edited = |text: String| Edited {
        text,
        notes: Vec::new(),
    };
    if block_of(&corefile, zones.clusterset.as_str()).is_some() {
        return Ok((edited(text.to_owned()), forwarding));
    }
    let cluster = cluster.filter(|it| it.directives.iter().any(|it| it.name.is("forward")));
    let cluster = cluster.ok_or_else(|| Refusal::NotForwarded {
        zone: zones.cluster.to_string(),
        clusterset: zones.clusterset.to_string(),
    })?;
    let (front, back) = text.split_at(cluster.close.end);
    let copy = copy(text, cluster, zones);
    Ok((edited(format!("{front}\n{copy}{back}")), forwarding))
}

/// The Corefile as it was; as [`super::undo`].
pub fn undo_node_local(text: &str, before: &str, zones: &Zones) -> Result<String, Refusal> {
    if configure_node_local(before, zones).is_ok_and(|(it, _)| it.text == text) {
        return Ok(before.to_owned());
    }
    let corefile = parse::parse(text)?;
    let zone = zones.clusterset.as_str();
    if block_of(&corefile, zone).is_none() {
        return Ok(text.to_owned());
    }
    let own = block_of(&corefile, zone).filter(|it| it.keys.len() == 1);
    let was_there = block_of(&parse::parse(before)?, zones.clusterset.as_str()).is_some();
    let own = own
        .filter(|_| !was_there)
        .ok_or_else(|| Refusal::Unrecognised {
            what: "there is no server block for the zone alone",
            zone: zones.clusterset.to_string(),
        })?;
    let begin = own.keys[0].start;
    let line = text[..begin].ends_with('\n').then(|| begin - 1);
    Ok(without(text, vec![(line.unwrap_or(begin), own.close.end)]))
}

fn block_of<'a>(corefile: &'a Corefile, zone: &str) -> Option<&'a Block> {
    let is_for = |it: &&Block| it.keys.iter().any(|key| Key::read(&key.text).zone == zone);
    corefile.blocks.iter().find(is_for)
}

/// The block that gets questions for the ClusterSet's zone.
fn block_for<'a>(corefile: &'a Corefile, zones: &Zones) -> Option<&'a Block> {
    let keys = corefile.blocks.iter().flat_map(|block| {
        let keys = block.keys.iter().map(|it| Key::read(&it.text));
        keys.map(move |key| (key, block))
    });
    let covering = keys.filter(|(key, _)| key.covers(&zones.clusterset));
    let closest = covering.max_by_key(|(key, _)| key.depth());
    closest.map(|(_, block)| block)
}

/// Where a block forwards to.
fn target(block: &Block) -> String {
    let forward = block.directives.iter().find(|it| it.name.is("forward"));
    let to = forward.map(|it| it.args.iter().skip(1).map(|it| it.text.as_str()));
    to.map_or_else(
        || "nowhere".to_owned(),
        |to| to.collect::<Vec<_>>().join(" "),
    )
}

/// The text of a block for another zone. These plugins listen, or are of the whole process.
fn copy(text: &str, block: &Block, zones: &Zones) -> String {
    const ONCE: [&str; 3] = ["health", "ready", "pprof"];
    let mut cuts = Vec::new();
    for directive in block
        .directives
        .iter()
        .filter(|it| ONCE.iter().any(|once| it.name.is(once)))
    {
        let begin = text[..directive.name.start]
            .rfind('\n')
            .map_or(0, |it| it + 1);
        let end = text[directive.end()..]
            .find('\n')
            .map(|it| directive.end() + it + 1);
        cuts.push((
            begin - block.open.start,
            end.unwrap_or(text.len()) - block.open.start,
        ));
    }
    let keys = block.keys.iter().map(|it| Key::read(&it.text));
    let port = keys.map(|it| it.port).find(|it| !it.is_empty());
    let port = port.map(|it| format!(":{it}")).unwrap_or_default();
    let body = without(&text[block.open.start..block.close.end], cuts);
    format!("{}{port} {body}", zones.clusterset)
}
