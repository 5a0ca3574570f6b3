//! Reads the function under `#[tool]`: its docs, what it takes and what it returns.

use proc_macro2::TokenStream;
use syn::{
    Attribute, Error, Expr, ExprLit, FnArg, Ident, Item, ItemFn, Lit, Pat, Result, Safety,
    Signature, Visibility, ext::IdentExt, parse_quote,
};

use crate::{parameter::Parameter, returns::Returns};

/// A function that can become a tool.
pub(crate) struct Function {
    pub(crate) vis: Visibility,
    pub(crate) ident: Ident,
    pub(crate) attributes: Attributes,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) returns: Returns,
    /// The function itself, called `call` and free of everything that is only for the macro.
    pub(crate) call: ItemFn,
}

/// The attributes of a function by where they go.
#[derive(Default)]
pub(crate) struct Attributes {
    /// For the struct, where people look for them.
    pub(crate) docs: Vec<Attribute>,
    /// For everything that is generated.
    pub(crate) cfgs: Vec<Attribute>,
    /// For the function.
    others: Vec<Attribute>,
}

impl Function {
    /// Reads the item the attribute stands on.
    pub(crate) fn parse(item: TokenStream) -> Result<Self> {
        let mut call = match syn::parse2(item)? {
            Item::Fn(function) => function,
            other => {
                return Err(Error::new_spanned(
                    other,
                    "#[tool] goes on an async function",
                ));
            }
        };
        refuse_signature(&call.sig)?;
        let ident = call.sig.ident.clone();
        let parameters = parameters(&mut call.sig)?;
        let attributes = Attributes::sort(std::mem::take(&mut call.attrs));
        let returns = Returns::of(&call.sig.output);
        call.sig.ident = Ident::new("call", ident.span());
        call.attrs.push(
            parse_quote!(#[doc = "Runs the function itself, for calling it from code and tests."]),
        );
        call.attrs.extend(attributes.others.iter().cloned());
        Ok(Self {
            vis: call.vis.clone(),
            ident,
            attributes,
            parameters,
            returns,
            call,
        })
    }

    /// The doc comment as text: every line, without the space after the slashes.
    pub(crate) fn doc_text(&self) -> String {
        let lines: Vec<String> = self.attributes.docs.iter().filter_map(doc_line).collect();
        lines.join("\n").trim().to_owned()
    }
}

impl Attributes {
    fn sort(attributes: Vec<Attribute>) -> Self {
        let mut sorted = Self::default();
        for attribute in attributes {
            match attribute.path() {
                path if path.is_ident("doc") => sorted.docs.push(attribute),
                path if path.is_ident("cfg") => sorted.cfgs.push(attribute),
                _ => sorted.others.push(attribute),
            }
        }
        sorted
    }
}

fn doc_line(attribute: &Attribute) -> Option<String> {
    let Expr::Lit(ExprLit {
        lit: Lit::Str(text),
        ..
    }) = &attribute.meta.require_name_value().ok()?.value
    else {
        return None;
    };
    let text = text.value();
    Some(
        text.strip_prefix(' ')
            .unwrap_or(&text)
            .trim_end()
            .to_owned(),
    )
}

/// A tool is called by a model, so it is a plain async function with one meaning.
fn refuse_signature(sig: &Signature) -> Result<()> {
    if let Some(receiver) = sig.receiver() {
        let text = "a tool takes no `self`: use a free function, or implement `Tool` by hand if it needs state";
        return Err(Error::new_spanned(receiver, text));
    }
    if sig.asyncness.is_none() {
        let text = format!(
            "a tool is an async function: write `async fn {}`",
            sig.ident
        );
        return Err(Error::new_spanned(sig.fn_token, text));
    }
    let generic = "a tool has no generics or lifetimes: its schema describes one set of types";
    if !sig.generics.params.is_empty() {
        return Err(Error::new_spanned(&sig.generics, generic));
    }
    if let Some(bounds) = &sig.generics.where_clause {
        return Err(Error::new_spanned(bounds, generic));
    }
    match (&sig.safety, &sig.abi) {
        (Safety::Default, None) => Ok(()),
        _ => Err(Error::new_spanned(
            sig,
            "a tool is a plain `async fn`, neither unsafe nor extern",
        )),
    }
}

/// Reads the parameters and leaves in the signature only what a function may have.
fn parameters(sig: &mut Signature) -> Result<Vec<Parameter>> {
    let tool = sig.ident.unraw();
    let mut parameters: Vec<Parameter> = Vec::new();
    for input in &mut sig.inputs {
        let FnArg::Typed(input) = input else { continue };
        let parameter = Parameter::take(input)?;
        if parameter.is_context() && parameters.iter().any(Parameter::is_context) {
            return Err(Error::new_spanned(
                input,
                "a tool takes one context: there are two here",
            ));
        }
        // The tool is a unit struct, which no parameter can shadow.
        if matches!(&*input.pat, Pat::Ident(name) if name.ident.unraw() == tool) {
            let text = format!(
                "the parameter has the name of the tool: rename the function and add `name = \"{tool}\"`, \
                 or rename the parameter"
            );
            return Err(Error::new_spanned(&input.pat, text));
        }
        parameters.push(parameter);
    }
    Ok(parameters)
}
