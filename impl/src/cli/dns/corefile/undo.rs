//! Takes back what was added, and nothing else.

use super::{
    Refusal, Zones,
    edit::{configure, targets},
    lexer::Token,
    parse::{self, Block, Directive},
    zone::Key,
};

/// The Corefile as it was. `before` is the one from before it was configured. What was changed since by somebody else stays;
/// without such changes the result is `before`, byte for byte. Where neither zone nor option is there any more, it is `text`.
pub fn undo(text: &str, before: &str, zones: &Zones) -> Result<String, Refusal> {
    if configure(before, zones).is_ok_and(|it| it.text == text) {
        return Ok(before.to_owned());
    }
    let unrecognised = |what| Refusal::Unrecognised {
        what,
        zone: zones.clusterset.to_string(),
    };
    let (now, then) = (parse::parse(text)?, parse::parse(before)?);
    let (now, then) = (targets(&now, zones)?, targets(&then, zones)?);
    if now.len() != then.len() {
        return Err(unrecognised("plugins kubernetes came or went"));
    }
    let mut cuts = Vec::new();
    for ((block, kubernetes), (block_before, before)) in now.into_iter().zip(then) {
        cuts.extend(keys(text, block, block_before, zones));
        if !before.args.iter().any(|it| zones.clusterset.is(&it.text)) {
            let added = kubernetes
                .args
                .iter()
                .find(|it| zones.clusterset.is(&it.text));
            cuts.extend(added.map(|it| with_blanks(text, it)));
        }
        cuts.extend(option(text, kubernetes, before, zones));
    }
    Ok(without(text, cuts))
}

/// A place in the text, from and to.
type Cut = (usize, usize);

/// The word with the blanks in front of it.
fn with_blanks(text: &str, token: &Token) -> Cut {
    let front = &text[..token.start];
    (front.trim_end_matches([' ', '\t']).len(), token.end)
}

fn keys(text: &str, block: &Block, before: &Block, zones: &Zones) -> Vec<Cut> {
    let of_zone = |it: &&Token| zones.clusterset.is(&Key::read(&it.text).zone);
    if before.keys.iter().any(|it| of_zone(&it)) {
        return Vec::new();
    }
    let cut = |token: &Token| {
        let (from, to) = with_blanks(text, token);
        // The comma belongs to the key in front of it.
        let comma = token.text.len() - token.text.trim_end_matches(',').len();
        (from, to - comma)
    };
    block.keys.iter().filter(of_zone).map(cut).collect()
}

fn option(text: &str, now: &Directive, before: &Directive, zones: &Zones) -> Option<Cut> {
    if super::edit::has_option(before, zones) {
        return None;
    }
    let body = now.body.as_ref()?;
    let of_zone = |it: &&Token| zones.clusterset.is(&it.text);
    let mut options = body.options.iter().filter(|it| it[0].is("multicluster"));
    let option = options.find(|it| it[1..].iter().any(|it| of_zone(&it)))?;
    if option.len() > 2 {
        return option[1..]
            .iter()
            .find(of_zone)
            .map(|it| with_blanks(text, it));
    }
    if body.options.len() == 1 && before.body.is_none() {
        return Some((now.last().end, body.close.end));
    }
    let begin = text[..option[0].start].rfind('\n').map_or(0, |it| it + 1);
    let end = text[option[1].end..]
        .find('\n')
        .map(|it| option[1].end + it + 1);
    Some((begin, end.unwrap_or(text.len())))
}

pub(super) fn without(text: &str, mut cuts: Vec<Cut>) -> String {
    cuts.sort_unstable();
    let (mut left, mut done) = (String::with_capacity(text.len()), 0);
    for (from, to) in cuts {
        left.push_str(&text[done..from.max(done)]);
        done = to.max(done);
    }
    left + &text[done..]
}
