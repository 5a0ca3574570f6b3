//! Parses the function under `#[tool]`: its docs, parameters and return type.

use proc_macro2::TokenStream;
use syn::{
    Attribute, Error, Expr, ExprLit, FnArg, Ident, Item, ItemFn, Lit, Pat, Result, Safety,
    Signature, Type, Visibility, ext::IdentExt, parse_quote,
};

use crate::{parameter::ToolParameter, returns::ReturnedType};

/// A function that can become a tool.
pub(crate) struct ToolFunction {
    pub(crate) vis: Visibility,
    pub(crate) ident: Ident,
    pub(crate) attributes: FunctionAttributes,
    pub(crate) parameters: Vec<ToolParameter>,
    pub(crate) returns: ReturnedType,
    /// The function itself, renamed to `call` and without attributes that are only for the macro.
    pub(crate) call: ItemFn,
}

/// The attributes of a function, sorted by destination.
#[derive(Default)]
pub(crate) struct FunctionAttributes {
    /// Doc comments, for the struct.
    pub(crate) docs: Vec<Attribute>,
    /// `cfg` attributes, for all generated items.
    pub(crate) cfgs: Vec<Attribute>,
    /// All others, for the function.
    others: Vec<Attribute>,
}

impl ToolFunction {
    /// Parses the item that has the attribute.
    pub(crate) fn parse(item: TokenStream) -> Result<Self> {
        let mut call = match syn::parse2(item)? {
            Item::Fn(function) => function,
            other => {
                return Err(Error::new_spanned(
                    other,
                    "#[tool] can only be applied to an async function",
                ));
            }
        };
        reject_signature(&call.sig)?;
        let ident = call.sig.ident.clone();
        let parameters = take_parameters(&mut call.sig)?;
        let attributes = FunctionAttributes::from_attributes(std::mem::take(&mut call.attrs));
        let returns = ReturnedType::from_output(&call.sig.output);
        call.sig.ident = Ident::new("call", ident.span());
        call.attrs.push(
            parse_quote!(#[doc = "Runs the function itself, for calls from code and tests."]),
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

    /// Returns the type of the state that the tool needs, if it needs any.
    pub(crate) fn state(&self) -> Option<&Type> {
        self.parameters.iter().find_map(ToolParameter::state)
    }

    /// Returns the doc comment as text: every line, without the space after the slashes.
    pub(crate) fn doc_text(&self) -> String {
        let lines: Vec<String> = self.attributes.docs.iter().filter_map(doc_line).collect();
        lines.join("\n").trim().to_owned()
    }
}

impl FunctionAttributes {
    fn from_attributes(attributes: Vec<Attribute>) -> Self {
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

/// Rejects signatures that a tool cannot have.
fn reject_signature(sig: &Signature) -> Result<()> {
    if let Some(receiver) = sig.receiver() {
        let text = "a tool cannot take `self`: use a free function, with a `State` parameter if it needs state";
        return Err(Error::new_spanned(receiver, text));
    }
    if sig.asyncness.is_none() {
        let text = format!(
            "a tool must be an async function: write `async fn {}`",
            sig.ident
        );
        return Err(Error::new_spanned(sig.fn_token, text));
    }
    let generic = "a tool cannot have generics or lifetimes: its schema describes one set of types";
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
            "a tool must be a plain `async fn`, neither unsafe nor extern",
        )),
    }
}

/// Parses the parameters and removes the attributes that are only for the macro.
fn take_parameters(sig: &mut Signature) -> Result<Vec<ToolParameter>> {
    let tool = sig.ident.unraw();
    let mut parameters: Vec<ToolParameter> = Vec::new();
    for input in &mut sig.inputs {
        let FnArg::Typed(input) = input else { continue };
        let parameter = ToolParameter::from_input(input)?;
        if parameter.is_context() && parameters.iter().any(ToolParameter::is_context) {
            return Err(Error::new_spanned(
                input,
                "a tool can take only one context",
            ));
        }
        if parameter.state().is_some() && parameters.iter().any(|known| known.state().is_some()) {
            return Err(Error::new_spanned(
                input,
                "a tool can take only one state: put what it needs into one struct",
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
