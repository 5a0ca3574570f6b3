//! Reads one parameter of the function: an argument the model gives, or the context.

use quote::ToTokens;
use syn::{
    Attribute, Error, Ident, LitStr, Pat, PatIdent, PatType, Result, Token, Type, TypeImplTrait,
    TypeReference, ext::IdentExt, meta::ParseNestedMeta, token::Paren, visit::Visit,
};

use crate::returns::{last_segment, plain};

/// One parameter.
pub(crate) enum Parameter {
    /// Given by the model.
    Argument(Box<Argument>),
    /// Lent by the runtime; not in the schema.
    Context(By),
}

/// How the function takes the context.
pub(crate) enum By {
    Value,
    Reference,
}

/// A parameter the model gives a value for.
pub(crate) struct Argument {
    pub(crate) ident: Ident,
    pub(crate) ty: Type,
    /// Docs and the attributes of serde and schemars.
    pub(crate) attributes: Vec<Attribute>,
    /// What the model calls it.
    pub(crate) wire_name: String,
}

impl Parameter {
    /// Reads a parameter and takes away the attributes that belong to the schema.
    pub(crate) fn take(input: &mut PatType) -> Result<Self> {
        let ident = plain_name(&input.pat)?;
        let (attributes, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut input.attrs)
            .into_iter()
            .partition(for_schema);
        input.attrs = rest;
        if let Some(cfg) = input
            .attrs
            .iter()
            .find(|attribute| attribute.path().is_ident("cfg"))
        {
            return Err(Error::new_spanned(
                cfg,
                "a parameter is always there: put `cfg` on the whole tool",
            ));
        }
        if let Some(by) = context(&input.ty) {
            return Ok(Self::Context(by));
        }
        refuse_type(&input.ty)?;
        let wire_name = wire_name(&ident, &attributes)?;
        let ty = (*input.ty).clone();
        Ok(Self::Argument(Box::new(Argument {
            ident,
            ty,
            attributes,
            wire_name,
        })))
    }

    pub(crate) fn is_context(&self) -> bool {
        matches!(self, Self::Context(_))
    }

    /// The argument, if it is one.
    pub(crate) fn argument(&self) -> Option<&Argument> {
        match self {
            Self::Argument(argument) => Some(argument),
            Self::Context(_) => None,
        }
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
            "a parameter needs a plain name: the model fills it in by that name",
        )),
    }
}

fn for_schema(attribute: &Attribute) -> bool {
    ["doc", "serde", "schemars"]
        .iter()
        .any(|word| attribute.path().is_ident(word))
}

/// Whether the type is the context, judged by its name.
fn context(ty: &Type) -> Option<By> {
    let named = |ty: &Type| {
        last_segment(ty).is_some_and(|last| last.ident == "Context" && last.arguments.is_none())
    };
    match plain(ty) {
        Type::Reference(TypeReference {
            mutability: None,
            elem,
            ..
        }) if named(elem) => Some(By::Reference),
        owned if named(owned) => Some(By::Value),
        _ => None,
    }
}

/// Refuses types that cannot be read from JSON and kept, also deep inside.
fn refuse_type(ty: &Type) -> Result<()> {
    let mut finder = Finder(None);
    finder.visit_type(ty);
    finder.0.map_or(Ok(()), Err)
}

/// Finds the first part of a type that an argument cannot have.
struct Finder(Option<Error>);

impl<'ast> Visit<'ast> for Finder {
    fn visit_type_reference(&mut self, borrowed: &'ast TypeReference) {
        let text = format!(
            "an argument is owned, not borrowed: use `{}`",
            owned(borrowed)
        );
        self.0
            .get_or_insert_with(|| Error::new_spanned(borrowed, text));
    }

    fn visit_type_impl_trait(&mut self, generic: &'ast TypeImplTrait) {
        let text = "an argument has one type: name it instead of `impl`";
        self.0
            .get_or_insert_with(|| Error::new_spanned(generic, text));
    }
}

/// The type to use in place of a borrowed one, as the user would write it.
fn owned(borrowed: &TypeReference) -> String {
    if let Type::Slice(slice) = plain(&borrowed.elem) {
        return format!("Vec<{}>", slice.elem.to_token_stream());
    }
    if borrowed.mutability.is_some() && context(&borrowed.elem).is_some() {
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

/// The name in the schema: that of the parameter, unless serde renames it.
fn wire_name(ident: &Ident, attributes: &[Attribute]) -> Result<String> {
    let mut name = ident.unraw().to_string();
    for attribute in attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("serde"))
    {
        attribute.parse_nested_meta(|meta| {
            let both = meta.path.is_ident("rename") && meta.input.peek(Paren);
            if both {
                meta.parse_nested_meta(|side| rename(&side, "deserialize", &mut name))
            } else {
                rename(&meta, "rename", &mut name)
            }
        })?;
    }
    Ok(name)
}

/// Reads `word = "..."` into `name` and steps over everything else.
fn rename(meta: &ParseNestedMeta<'_>, word: &str, name: &mut String) -> Result<()> {
    if meta.path.is_ident(word) {
        *name = meta.value()?.parse::<LitStr>()?.value();
    } else if meta.input.peek(Token![=]) {
        meta.value()?.parse::<syn::Expr>()?;
    } else if meta.input.peek(Paren) {
        meta.parse_nested_meta(|inner| rename(&inner, "", name))?;
    }
    Ok(())
}
