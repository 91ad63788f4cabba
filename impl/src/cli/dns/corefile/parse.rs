//! Server blocks, plugins and their options of a Corefile, each with its place in the text. Reads only.
//!
//! What CoreDNS' parser takes but this one does not know to edit safely is refused with its line: server blocks without braces,
//! and blocks on one line.

use super::{
    Refusal,
    lexer::{self, Token},
};

/// A Corefile.
#[derive(Debug)]
pub(super) struct Corefile {
    /// Server blocks, in order.
    pub(super) blocks: Vec<Block>,
    /// Snippets, `(name) { … }`, in order.
    pub(super) snippets: Vec<Block>,
    /// Words `import` outside of blocks.
    pub(super) imports: Vec<Token>,
}

/// A server block or snippet.
#[derive(Debug)]
pub(super) struct Block {
    /// What it is for, such as `.:53`; may end with a comma.
    pub(super) keys: Vec<Token>,
    /// Its plugins, in order. `import` is one of them.
    pub(super) directives: Vec<Directive>,
    /// The brace that opens it.
    pub(super) open: Token,
    /// The brace that closes it.
    pub(super) close: Token,
}

/// A plugin in a block.
#[derive(Debug)]
pub(super) struct Directive {
    /// The plugin.
    pub(super) name: Token,
    /// What is on its line.
    pub(super) args: Vec<Token>,
    /// Its options.
    pub(super) body: Option<Body>,
}

impl Directive {
    /// The last word on its first line, without a brace.
    pub(super) fn last(&self) -> &Token {
        self.args.last().unwrap_or(&self.name)
    }

    /// The last byte of it, options included.
    pub(super) fn end(&self) -> usize {
        let body = self.body.as_ref().map(|body| body.close.end);
        body.unwrap_or(self.last().end)
    }

    /// Its options: lines of words, of which there is at least one.
    pub(super) fn options(&self) -> &[Vec<Token>] {
        self.body.as_ref().map_or(&[], |body| &body.options)
    }
}

/// Options of a plugin.
#[derive(Debug)]
pub(super) struct Body {
    /// The brace that opens them.
    pub(super) open: Token,
    /// Lines of words. Options of options are lines of their own.
    pub(super) options: Vec<Vec<Token>>,
    /// The brace that closes them.
    pub(super) close: Token,
}

/// Reads a Corefile.
pub(super) fn parse(text: &str) -> Result<Corefile, Refusal> {
    let mut lines = Lines {
        tokens: lexer::tokens(text)?.into_iter().peekable(),
    };
    let mut corefile = Corefile {
        blocks: Vec::new(),
        snippets: Vec::new(),
        imports: Vec::new(),
    };
    while let Some(first) = lines.tokens.next() {
        if first.is("import") {
            lines.rest_of(&first);
            corefile.imports.push(first);
            continue;
        }
        let block = block(first, &mut lines)?;
        let snippet = block.keys.len() == 1 && block.keys[0].text.starts_with('(');
        if snippet {
            corefile.snippets.push(block);
        } else {
            corefile.blocks.push(block);
        }
    }
    Ok(corefile)
}

struct Lines {
    tokens: std::iter::Peekable<std::vec::IntoIter<Token>>,
}

impl Lines {
    /// What follows a word on its line.
    fn rest_of(&mut self, first: &Token) -> Vec<Token> {
        let mut line = first.last_line;
        let mut rest = Vec::new();
        while let Some(token) = self.tokens.next_if(|it| it.line == line) {
            line = token.last_line;
            rest.push(token);
        }
        rest
    }
}

fn block(first: Token, lines: &mut Lines) -> Result<Block, Refusal> {
    let line = first.line;
    let mut keys = Vec::new();
    let mut next = Some(first);
    let open = loop {
        match next {
            None => return Err(Refusal::NoBraces { line }),
            Some(token) if token.is("{") => break token,
            Some(token) if token.is("}") || token.text.ends_with('{') => {
                return Err(Refusal::Brace { line: token.line });
            }
            Some(token) => {
                let goes_on = token.text.ends_with(',');
                let same_line = |it: &Token| it.line == token.last_line;
                if !goes_on && !lines.tokens.peek().is_some_and(same_line) {
                    return Err(Refusal::NoBraces { line });
                }
                keys.push(token);
            }
        }
        next = lines.tokens.next();
    };
    if keys.is_empty() {
        return Err(Refusal::Brace { line });
    }
    alone(lines, &open)?;
    let mut directives = Vec::new();
    loop {
        let Some(name) = lines.tokens.next() else {
            return Err(Refusal::OpenBlock { line: open.line });
        };
        if name.is("}") {
            alone(lines, &name)?;
            return Ok(Block {
                keys,
                directives,
                open,
                close: name,
            });
        }
        directives.push(directive(name, lines)?);
    }
}

/// Refuses words behind a brace on its line.
fn alone(lines: &mut Lines, brace: &Token) -> Result<(), Refusal> {
    match lines.tokens.peek() {
        Some(next) if next.line == brace.line => Err(Refusal::OneLine { line: brace.line }),
        Some(_) | None => Ok(()),
    }
}

fn directive(name: Token, lines: &mut Lines) -> Result<Directive, Refusal> {
    if name.is("{") {
        return Err(Refusal::Brace { line: name.line });
    }
    let mut args = lines.rest_of(&name);
    let opens = args.pop_if(|last| last.is("{"));
    braceless(&args)?;
    let body = match opens {
        None => None,
        Some(open) => Some(body(open, lines)?),
    };
    Ok(Directive { name, args, body })
}

fn braceless(words: &[Token]) -> Result<(), Refusal> {
    match words.iter().find(|it| it.is("{") || it.is("}")) {
        Some(brace) => Err(Refusal::OneLine { line: brace.line }),
        None => Ok(()),
    }
}

fn body(open: Token, lines: &mut Lines) -> Result<Body, Refusal> {
    let mut options = Vec::new();
    let mut depth = 0;
    loop {
        let Some(first) = lines.tokens.next() else {
            return Err(Refusal::OpenBlock { line: open.line });
        };
        if first.is("}") {
            alone(lines, &first)?;
            if depth == 0 {
                return Ok(Body {
                    open,
                    options,
                    close: first,
                });
            }
            depth -= 1;
            continue;
        }
        if first.is("{") {
            return Err(Refusal::Brace { line: first.line });
        }
        let mut option = lines.rest_of(&first);
        if option.pop_if(|last| last.is("{")).is_some() {
            depth += 1;
        }
        braceless(&option)?;
        option.insert(0, first);
        options.push(option);
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn texts(tokens: &[Token]) -> Vec<&str> {
        tokens.iter().map(|it| it.text.as_str()).collect()
    }

    #[test]
    fn blocks_plugins_and_options_are_told_apart() {
        let corefile = parse(
            "import ../common\n(snip) {\n log\n}\na.org:53,\nb.org:53 {\n kubernetes x y {\n  pods insecure\n  deep {\n   er\n  }\n }\n whoami\n}\n",
        )
        .unwrap();

        assert_eq!(corefile.imports[0].line, 1);
        assert_eq!(texts(&corefile.snippets[0].keys), ["(snip)"]);
        let block = &corefile.blocks[0];
        assert_eq!(texts(&block.keys), ["a.org:53,", "b.org:53"]);
        let [kubernetes, whoami] = block.directives.as_slice() else {
            panic!("{block:?}");
        };
        assert_eq!(texts(&kubernetes.args), ["x", "y"]);
        let options: Vec<_> = kubernetes.options().iter().map(|it| texts(it)).collect();
        assert_eq!(
            options,
            [vec!["pods", "insecure"], vec!["deep"], vec!["er"]]
        );
        assert_eq!(kubernetes.body.as_ref().unwrap().close.line, 12);
        assert_eq!((whoami.args.len(), whoami.options().len()), (0, 0));
        assert_eq!(block.close.line, 14);
    }

    #[rstest]
    #[case("whoami\n", Refusal::NoBraces { line: 1 })]
    #[case("# none\n.:53\nlog\n", Refusal::NoBraces { line: 2 })]
    #[case(".:53 {\n log\n", Refusal::OpenBlock { line: 1 })]
    #[case(".:53 {\n kubernetes a {\n", Refusal::OpenBlock { line: 2 })]
    #[case(".:53 { log }\n", Refusal::OneLine { line: 1 })]
    #[case(".:53 {\n kubernetes a { pods insecure }\n}\n", Refusal::OneLine { line: 2 })]
    #[case(".:53 {\n kubernetes a {\n pods insecure }\n}\n", Refusal::OneLine { line: 3 })]
    #[case(".:53 {\n log\n} .:54 {\n}\n", Refusal::OneLine { line: 3 })]
    #[case(".:53 {\n}\n}\n", Refusal::Brace { line: 3 })]
    #[case("{\n}\n", Refusal::Brace { line: 1 })]
    #[case(".:53{\n}\n", Refusal::Brace { line: 1 })]
    #[case(".:53 {\n log\n {\n }\n}\n", Refusal::Brace { line: 3 })]
    fn what_is_not_understood_is_refused_with_its_line(
        #[case] text: &str,
        #[case] expected: Refusal,
    ) {
        assert_eq!(parse(text).unwrap_err(), expected);
    }
}
