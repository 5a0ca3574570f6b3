//! Parses one parameter of the function: an argument from the model, the context, or the state.

use quote::ToTokens;
use syn::{
    Attribute, Error, Ident, LitStr, Meta, Pat, PatIdent, PatType, Result, Token, Type,
    TypeImplTrait, TypeReference, ext::IdentExt, meta::ParseNestedMeta, token::Paren, visit::Visit,
};

use crate::returns::{first_generic_type, last_segment, strip_parens};

/// One parameter.
pub(crate) enum ToolParameter {
    /// An argument from the model.
    Argument(Box<ToolArgument>),
    /// The context from the runtime; not in the schema.
    Context(PassMode),
    /// The state from the program, of this type; not in the schema.
    State(Box<Type>),
}

/// The way the function takes the context.
pub(crate) enum PassMode {
    Value,
    Reference,
}

/// A parameter whose value comes from the model.
pub(crate) struct ToolArgument {
    pub(crate) ident: Ident,
    pub(crate) ty: Type,
    /// Docs and the attributes of serde and schemars.
    pub(crate) attributes: Vec<Attribute>,
    /// The name in the schema.
    pub(crate) wire_name: String,
    /// True if the program fills it: `#[host]`.
    pub(crate) by_host: bool,
}

impl ToolParameter {
    /// Parses a parameter and removes the attributes that belong to the schema.
    pub(crate) fn from_input(input: &mut PatType) -> Result<Self> {
        let (attributes, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut input.attrs)
            .into_iter()
            .partition(is_schema_attribute);
        let by_host = rest.iter().any(is_host_attribute);
        input.attrs = rest;
        input
            .attrs
            .retain(|attribute| !is_host_attribute(attribute));
        if let Some(cfg) = input
            .attrs
            .iter()
            .find(|attribute| attribute.path().is_ident("cfg"))
        {
            return Err(Error::new_spanned(
                cfg,
                "a parameter cannot be conditional: put `cfg` on the whole tool",
            ));
        }
        // Before the name is checked: `State(db): State<Db>` has a pattern.
        let state = state_type(&input.ty);
        if by_host && (state.is_some() || context_mode(&input.ty).is_some()) {
            return Err(Error::new_spanned(
                &input.ty,
                "`#[host]` is for arguments: the model never sees the context or the state",
            ));
        }
        if let Some(state) = state {
            return Ok(Self::State(Box::new(state)));
        }
        let ident = plain_name(&input.pat)?;
        // Before the type check: `&Context` is the only reference that is allowed.
        if let Some(by) = context_mode(&input.ty) {
            return Ok(Self::Context(by));
        }
        reject_type(&input.ty)?;
        let wire_name = wire_name(&ident, &attributes)?;
        let ty = (*input.ty).clone();
        Ok(Self::Argument(Box::new(ToolArgument {
            ident,
            ty,
            attributes,
            wire_name,
            by_host,
        })))
    }

    pub(crate) fn is_context(&self) -> bool {
        matches!(self, Self::Context(_))
    }

    /// Returns the argument, if it is one.
    pub(crate) fn argument(&self) -> Option<&ToolArgument> {
        match self {
            Self::Argument(argument) => Some(argument),
            Self::Context(_) | Self::State(_) => None,
        }
    }

    /// Returns the type of the state, if it is the state.
    pub(crate) fn state(&self) -> Option<&Type> {
        match self {
            Self::State(ty) => Some(ty),
            Self::Argument(_) | Self::Context(_) => None,
        }
    }
}

impl ToolArgument {
    /// Checks whether the argument has an attribute of serde or schemars.
    pub(crate) fn has_serde_attribute(&self) -> bool {
        self.attributes
            .iter()
            .any(|attribute| !attribute.path().is_ident("doc"))
    }
}

fn plain_name(pat: &Pat) -> Result<Ident> {
    match pat {
        Pat::Ident(PatIdent {
            by_ref: None,
            subpat: None,
            ident,
            ..
        }) => Ok(ident.clone()),
        other => Err(Error::new_spanned(
            other,
            "a parameter needs a plain name: the model passes the argument by that name",
        )),
    }
}

fn is_schema_attribute(attribute: &Attribute) -> bool {
    ["doc", "serde", "schemars"]
        .iter()
        .any(|word| attribute.path().is_ident(word))
}

/// Checks for `#[host]`. Anything inside it is a mistake that the compiler reports.
fn is_host_attribute(attribute: &Attribute) -> bool {
    matches!(&attribute.meta, Meta::Path(path) if path.is_ident("host"))
}

/// Returns how the context is taken, if the type is called `Context`.
fn context_mode(ty: &Type) -> Option<PassMode> {
    let named = |ty: &Type| {
        last_segment(ty).is_some_and(|last| last.ident == "Context" && last.arguments.is_none())
    };
    match strip_parens(ty) {
        Type::Reference(TypeReference {
            mutability: None,
            elem,
            ..
        }) if named(elem) => Some(PassMode::Reference),
        owned if named(owned) => Some(PassMode::Value),
        _ => None,
    }
}

/// Returns the `T` of a type that is written `State<T>`.
fn state_type(ty: &Type) -> Option<Type> {
    last_segment(ty)
        .filter(|last| last.ident == "State")
        .and_then(first_generic_type)
}

/// Rejects types that cannot be deserialized into owned values, also in nested positions.
fn reject_type(ty: &Type) -> Result<()> {
    let mut finder = UnsupportedTypeFinder(None);
    finder.visit_type(ty);
    finder.0.map_or(Ok(()), Err)
}

/// Finds the first part of a type that an argument cannot have.
struct UnsupportedTypeFinder(Option<Error>);

impl<'ast> Visit<'ast> for UnsupportedTypeFinder {
    fn visit_type_reference(&mut self, borrowed: &'ast TypeReference) {
        let text = format!(
            "an argument must be owned, not borrowed: use `{}`",
            owned_equivalent(borrowed)
        );
        self.0
            .get_or_insert_with(|| Error::new_spanned(borrowed, text));
    }

    fn visit_type_impl_trait(&mut self, generic: &'ast TypeImplTrait) {
        let text = "an argument needs a concrete type: name it instead of `impl`";
        self.0
            .get_or_insert_with(|| Error::new_spanned(generic, text));
    }
}

/// Returns the type to use instead of a borrowed one, as the user would write it.
fn owned_equivalent(borrowed: &TypeReference) -> String {
    if let Type::Slice(slice) = strip_parens(&borrowed.elem) {
        return format!("Vec<{}>", slice.elem.to_token_stream());
    }
    if borrowed.mutability.is_some() && context_mode(&borrowed.elem).is_some() {
        return "&Context".to_owned();
    }
    match last_segment(&borrowed.elem)
        .map(|last| last.ident.to_string())
        .as_deref()
    {
        Some("str") => "String".to_owned(),
        Some("Path") => "PathBuf".to_owned(),
        _ => borrowed.elem.to_token_stream().to_string(),
    }
}

/// Returns the name in the schema: that of the parameter, unless serde renames it.
fn wire_name(ident: &Ident, attributes: &[Attribute]) -> Result<String> {
    let mut name = ident.unraw().to_string();
    for attribute in attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("serde"))
    {
        attribute.parse_nested_meta(|meta| {
            // `rename(serialize = …, deserialize = …)`: the model's arguments are deserialized.
            let both = meta.path.is_ident("rename") && meta.input.peek(Paren);
            if both {
                meta.parse_nested_meta(|side| read_rename(&side, "deserialize", &mut name))
            } else {
                read_rename(&meta, "rename", &mut name)
            }
        })?;
    }
    Ok(name)
}

/// Reads `word = "..."` into `name` and skips everything else.
fn read_rename(meta: &ParseNestedMeta<'_>, word: &str, name: &mut String) -> Result<()> {
    if meta.path.is_ident(word) {
        *name = meta.value()?.parse::<LitStr>()?.value();
    } else if meta.input.peek(Token![=]) {
        // Values of other attributes must be consumed, or the parser fails on them.
        meta.value()?.parse::<syn::Expr>()?;
    } else if meta.input.peek(Paren) {
        meta.parse_nested_meta(|inner| read_rename(&inner, "", name))?;
    }
    Ok(())
}
