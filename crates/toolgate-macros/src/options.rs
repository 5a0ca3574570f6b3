//! Reads what stands in the brackets of `#[tool(...)]` and refuses what makes no sense.

use proc_macro2::TokenStream;
use quote::format_ident;
use syn::{Error, Ident, Lit, LitStr, Path, Result, Token, meta::ParseNestedMeta, parse::Parser};

use crate::words::{KINDS, OPTIONS, SIDE_EFFECTS, Words, is_tool_name, milliseconds, nearest};

/// The options of one tool, checked as far as that goes without the function.
#[derive(Default)]
pub(crate) struct Options {
    /// Where the generated code finds Toolgate; `::toolgate` if not given.
    pub(crate) toolgate: Option<Path>,
    pub(crate) name: Option<LitStr>,
    pub(crate) description: Option<LitStr>,
    /// A variant of `Kind`.
    pub(crate) kind: Option<Ident>,
    /// A variant of `SideEffect`.
    pub(crate) side_effect: Option<Ident>,
    /// Fields of `Hints` that are true.
    pub(crate) hints: Vec<Ident>,
    pub(crate) resources: Vec<Resource>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) long_running: Option<LitStr>,
    pub(crate) cost: Option<f64>,
    /// The word `output`, if an output schema is wanted.
    pub(crate) output: Option<Ident>,
}

/// A parameter that names something two calls could fight over.
pub(crate) struct Resource {
    /// The constructor: `path` or `name`.
    pub(crate) constructor: Ident,
    pub(crate) parameter: LitStr,
}

impl Options {
    /// Reads the tokens between the brackets.
    pub(crate) fn parse(tokens: TokenStream) -> Result<Self> {
        let mut options = Self::default();
        let mut seen: Vec<String> = Vec::new();
        let parser = syn::meta::parser(|meta| {
            let word = meta
                .path
                .get_ident()
                .map(Ident::to_string)
                .unwrap_or_default();
            if seen.contains(&word) && !word.starts_with("resource") {
                return Err(meta.error(format!("`{word}` is given twice")));
            }
            options.read(&word, &meta)?;
            seen.push(word);
            Ok(())
        });
        parser.parse2(tokens)?;
        options.refuse_contradictions()?;
        Ok(options)
    }

    fn read(&mut self, word: &str, meta: &ParseNestedMeta<'_>) -> Result<()> {
        match word {
            "name" => self.name = Some(tool_name(text(meta)?)?),
            "description" => self.description = Some(text(meta)?),
            "crate" => self.toolgate = Some(text(meta)?.parse_with(Path::parse_mod_style)?),
            "kind" => self.kind = Some(variant("kind", KINDS, &text(meta)?)?),
            "side_effect" => {
                self.side_effect = Some(variant("side effect", SIDE_EFFECTS, &text(meta)?)?)
            }
            "read_only" | "destructive" | "idempotent" | "open_world" => {
                self.hints.push(flag(meta)?)
            }
            "resource" => self.resources.push(Resource::new("path", text(meta)?)),
            "resource_name" => self.resources.push(Resource::new("name", text(meta)?)),
            "timeout" => self.timeout_ms = Some(timeout(&text(meta)?)?),
            "long_running" => self.long_running = Some(text(meta)?),
            "cost" => self.cost = Some(cost(meta)?),
            "output" => self.output = Some(flag(meta)?),
            _ => return Err(unknown(meta)),
        }
        Ok(())
    }

    /// A tool that says of itself both that it changes things and that it does not is not to be believed.
    fn refuse_contradictions(&self) -> Result<()> {
        let given = |ident: &&Ident, words: &[&str]| words.iter().any(|word| *ident == word);
        let said = || self.hints.iter().chain(&self.side_effect);
        let looks = said().find(|ident| given(ident, &["read_only", "None", "ReadOnly"]));
        let writes = said().find(|ident| given(ident, &["destructive", "WorkspaceWrite"]));
        match (looks, writes) {
            (Some(_), Some(writes)) => Err(Error::new(
                writes.span(),
                "a tool that only looks cannot also change things",
            )),
            _ => Ok(()),
        }
    }
}

impl Resource {
    fn new(constructor: &str, parameter: LitStr) -> Self {
        Self {
            constructor: format_ident!("{constructor}"),
            parameter,
        }
    }
}

fn text(meta: &ParseNestedMeta<'_>) -> Result<LitStr> {
    match value(meta)? {
        Lit::Str(text) => Ok(text),
        other => Err(Error::new_spanned(other, "expected text in quotes")),
    }
}

fn value(meta: &ParseNestedMeta<'_>) -> Result<Lit> {
    if meta.input.peek(Token![=]) {
        return meta.value()?.parse();
    }
    let word = word(meta);
    Err(meta.error(format!("`{word}` needs a value: {word} = ...")))
}

fn flag(meta: &ParseNestedMeta<'_>) -> Result<Ident> {
    if meta.input.peek(Token![=]) {
        let word = word(meta);
        return Err(meta.error(format!("`{word}` takes no value: it holds if it is there")));
    }
    meta.path.require_ident().cloned()
}

fn word(meta: &ParseNestedMeta<'_>) -> String {
    meta.path
        .segments
        .iter()
        .map(|segment| segment.ident.to_string())
        .collect::<Vec<_>>()
        .join("::")
}

fn unknown(meta: &ParseNestedMeta<'_>) -> Error {
    let word = word(meta);
    let hint = nearest(&word, OPTIONS)
        .map(|near| format!(", did you mean `{near}`?"))
        .unwrap_or_default();
    Error::new_spanned(
        &meta.path,
        format!(
            "unknown option `{word}`{hint}\nvalid options: {}",
            OPTIONS.join(", ")
        ),
    )
}

/// The variant that `given` stands for, at the place where it was written.
fn variant(what: &str, words: Words, given: &LitStr) -> Result<Ident> {
    let wanted = given.value();
    match words.iter().find(|(word, _)| *word == wanted) {
        Some((_, variant)) => Ok(Ident::new(variant, given.span())),
        None => {
            let valid: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            let hint = nearest(&wanted, &valid)
                .map(|near| format!(", did you mean `{near}`?"))
                .unwrap_or_default();
            let list = valid.join(", ");
            Err(Error::new(
                given.span(),
                format!("`{wanted}` is no {what}{hint}\nvalid words: {list}"),
            ))
        }
    }
}

fn tool_name(given: LitStr) -> Result<LitStr> {
    let name = given.value();
    match is_tool_name(&name) {
        true => Ok(given),
        false => Err(Error::new(
            given.span(),
            format!("{name:?} is no tool name: use 1 to 128 of A-Z a-z 0-9 _ . -"),
        )),
    }
}

fn timeout(given: &LitStr) -> Result<u64> {
    let text = given.value();
    let bad = || {
        format!(
            "{text:?} is no timeout: use a whole number above 0 and a unit, like \"500ms\", \"30s\" or \"2m\""
        )
    };
    milliseconds(&text).ok_or_else(|| Error::new(given.span(), bad()))
}

fn cost(meta: &ParseNestedMeta<'_>) -> Result<f64> {
    let given = value(meta)?;
    let number = match &given {
        Lit::Float(number) => number.base10_parse::<f64>()?,
        Lit::Int(number) => number.base10_parse::<f64>()?,
        _ => f64::NAN,
    };
    if number.is_finite() && number >= 0.0 {
        return Ok(number);
    }
    Err(Error::new_spanned(
        given,
        "a cost is a number from 0 up, like 0.5",
    ))
}
