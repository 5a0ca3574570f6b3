//! Parses the options of `#[tool(...)]` and rejects invalid ones.

use proc_macro2::TokenStream;
use quote::format_ident;
use syn::{Error, Ident, Lit, LitStr, Path, Result, Token, meta::ParseNestedMeta, parse::Parser};

use crate::words::{
    KINDS, OPTION_NAMES, SIDE_EFFECTS, ValueVariants, find_nearest, is_tool_name,
    parse_milliseconds,
};

/// The options of one tool, checked as far as possible without the function.
#[derive(Default)]
pub(crate) struct MacroOptions {
    /// The path of Toolgate in the generated code; `::toolgate` if not given.
    pub(crate) toolgate: Option<Path>,
    pub(crate) name: Option<LitStr>,
    pub(crate) description: Option<LitStr>,
    /// A variant of `Kind`.
    pub(crate) kind: Option<Ident>,
    /// A variant of `SideEffect`.
    pub(crate) side_effect: Option<Ident>,
    /// Fields of `ToolHints` that are true.
    pub(crate) hints: Vec<Ident>,
    pub(crate) resources: Vec<ResourceOption>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) long_running: Option<LitStr>,
    pub(crate) cost: Option<f64>,
    /// The word `output`, if an output schema is requested.
    pub(crate) output: Option<Ident>,
}

/// A parameter that names a resource for which two calls can conflict.
pub(crate) struct ResourceOption {
    /// The constructor: `path` or `name`.
    pub(crate) constructor: Ident,
    pub(crate) parameter: LitStr,
}

impl MacroOptions {
    /// Parses the tokens between the parentheses.
    pub(crate) fn parse(tokens: TokenStream) -> Result<Self> {
        let mut options = Self::default();
        let mut seen: Vec<String> = Vec::new();
        let parser = syn::meta::parser(|meta| {
            let word = meta
                .path
                .get_ident()
                .map(Ident::to_string)
                .unwrap_or_default();
            // Only `resource` and `resource_name` may be repeated.
            if seen.contains(&word) && !word.starts_with("resource") {
                return Err(meta.error(format!("duplicate option `{word}`")));
            }
            options.apply_option(&word, &meta)?;
            seen.push(word);
            Ok(())
        });
        parser.parse2(tokens)?;
        options.reject_contradictions()?;
        Ok(options)
    }

    fn apply_option(&mut self, word: &str, meta: &ParseNestedMeta<'_>) -> Result<()> {
        match word {
            "name" => self.name = Some(parse_tool_name(parse_text(meta)?)?),
            "description" => self.description = Some(parse_text(meta)?),
            "crate" => self.toolgate = Some(parse_text(meta)?.parse_with(Path::parse_mod_style)?),
            "kind" => self.kind = Some(parse_variant("kind", KINDS, &parse_text(meta)?)?),
            "side_effect" => {
                self.side_effect = Some(parse_variant(
                    "side effect",
                    SIDE_EFFECTS,
                    &parse_text(meta)?,
                )?)
            }
            "read_only" | "destructive" | "idempotent" | "open_world" => {
                self.hints.push(parse_flag(meta)?)
            }
            "resource" => self
                .resources
                .push(ResourceOption::new("path", parse_text(meta)?)),
            "resource_name" => self
                .resources
                .push(ResourceOption::new("name", parse_text(meta)?)),
            "timeout" => self.timeout_ms = Some(parse_timeout(&parse_text(meta)?)?),
            "long_running" => self.long_running = Some(parse_text(meta)?),
            "cost" => self.cost = Some(parse_cost(meta)?),
            "output" => self.output = Some(parse_flag(meta)?),
            _ => return Err(unknown_option(meta)),
        }
        Ok(())
    }

    /// Rejects a tool that declares both that it changes something and that it does not.
    fn reject_contradictions(&self) -> Result<()> {
        let given = |ident: &&Ident, words: &[&str]| words.iter().any(|word| *ident == word);
        let said = || self.hints.iter().chain(&self.side_effect);
        let looks = said().find(|ident| given(ident, &["read_only", "None", "ReadOnly"]));
        let writes = said().find(|ident| given(ident, &["destructive", "WorkspaceWrite"]));
        match (looks, writes) {
            (Some(_), Some(writes)) => Err(Error::new(
                writes.span(),
                "a read-only tool cannot also be declared to change something",
            )),
            _ => Ok(()),
        }
    }
}

impl ResourceOption {
    fn new(constructor: &str, parameter: LitStr) -> Self {
        Self {
            constructor: format_ident!("{constructor}"),
            parameter,
        }
    }
}

fn parse_text(meta: &ParseNestedMeta<'_>) -> Result<LitStr> {
    match parse_value(meta)? {
        Lit::Str(text) => Ok(text),
        other => Err(Error::new_spanned(other, "expected a string literal")),
    }
}

fn parse_value(meta: &ParseNestedMeta<'_>) -> Result<Lit> {
    if meta.input.peek(Token![=]) {
        return meta.value()?.parse();
    }
    let word = option_name(meta);
    Err(meta.error(format!("`{word}` needs a value: {word} = ...")))
}

fn parse_flag(meta: &ParseNestedMeta<'_>) -> Result<Ident> {
    if meta.input.peek(Token![=]) {
        let word = option_name(meta);
        return Err(meta.error(format!("`{word}` takes no value: write only the name")));
    }
    meta.path.require_ident().cloned()
}

fn option_name(meta: &ParseNestedMeta<'_>) -> String {
    meta.path
        .segments
        .iter()
        .map(|segment| segment.ident.to_string())
        .collect::<Vec<_>>()
        .join("::")
}

fn unknown_option(meta: &ParseNestedMeta<'_>) -> Error {
    let word = option_name(meta);
    let hint = find_nearest(&word, OPTION_NAMES)
        .map(|near| format!(", did you mean `{near}`?"))
        .unwrap_or_default();
    Error::new_spanned(
        &meta.path,
        format!(
            "unknown option `{word}`{hint}\nvalid options: {}",
            OPTION_NAMES.join(", ")
        ),
    )
}

/// Returns the variant that `given` stands for, with the span of `given`.
fn parse_variant(what: &str, words: ValueVariants, given: &LitStr) -> Result<Ident> {
    let wanted = given.value();
    match words.iter().find(|(word, _)| *word == wanted) {
        Some((_, variant)) => Ok(Ident::new(variant, given.span())),
        None => {
            let valid: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            let hint = find_nearest(&wanted, &valid)
                .map(|near| format!(", did you mean `{near}`?"))
                .unwrap_or_default();
            let list = valid.join(", ");
            Err(Error::new(
                given.span(),
                format!("`{wanted}` is not a valid {what}{hint}\nvalid values: {list}"),
            ))
        }
    }
}

fn parse_tool_name(given: LitStr) -> Result<LitStr> {
    let name = given.value();
    if is_tool_name(&name) {
        Ok(given)
    } else {
        Err(Error::new(
            given.span(),
            format!("{name:?} is not a valid tool name: use 1 to 128 of A-Z a-z 0-9 _ . -"),
        ))
    }
}

fn parse_timeout(given: &LitStr) -> Result<u64> {
    let text = given.value();
    let bad = || {
        format!(
            "{text:?} is not a valid timeout: use a whole number above 0 and a unit, like \"500ms\", \"30s\" or \"2m\""
        )
    };
    parse_milliseconds(&text).ok_or_else(|| Error::new(given.span(), bad()))
}

fn parse_cost(meta: &ParseNestedMeta<'_>) -> Result<f64> {
    let given = parse_value(meta)?;
    let number = match &given {
        Lit::Float(number) => number.base10_parse::<f64>()?,
        Lit::Int(number) => number.base10_parse::<f64>()?,
        // Rejected below, with the same message as a negative number.
        _ => f64::NAN,
    };
    if number.is_finite() && number >= 0.0 {
        return Ok(number);
    }
    Err(Error::new_spanned(
        given,
        "a cost is a number of at least 0, like 0.5",
    ))
}
