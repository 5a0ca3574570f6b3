//! Writes the code of a tool: the struct, the function and the implementation of `Tool`.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::{Error, LitStr, Path, Result, ext::IdentExt, parse_quote, spanned::Spanned};

use crate::{
    function::Function,
    options::{Options, Resource},
    parameter::{Argument, By, Parameter},
    returns::Returns,
    words::is_tool_name,
};

/// The tool that `function` becomes under `options`.
pub(crate) fn tool(options: &Options, function: &Function) -> Result<TokenStream> {
    let toolgate = options
        .toolgate
        .clone()
        .unwrap_or_else(|| parse_quote!(::toolgate));
    let description = description(options, function)?;
    let spec = spec(&toolgate, options, function, &description)?;
    let invoke = invoke(&toolgate, function);
    let input = input(&toolgate, function);
    let Function {
        vis,
        ident,
        attributes,
        call,
        ..
    } = function;
    let cfgs = &attributes.cfgs;
    // The doc comment, or else the description, so that `missing_docs` is content.
    let docs = if attributes.docs.is_empty() {
        quote!(#[doc = #description])
    } else {
        attributes.docs.iter().map(|doc| quote!(#doc)).collect()
    };
    Ok(quote! {
        #docs
        #(#cfgs)*
        #[allow(non_camel_case_types)]
        #[derive(::core::fmt::Debug, ::core::clone::Clone, ::core::marker::Copy, ::core::default::Default)]
        #vis struct #ident;

        #(#cfgs)*
        impl #ident {
            #call
        }

        // A scope of its own: the input has no name outside, and what the user names is still in sight.
        #(#cfgs)*
        const _: () = {
            #input

            impl #toolgate::Tool for #ident {
                #spec
                #invoke
            }
        };
    })
}

fn description(options: &Options, function: &Function) -> Result<LitStr> {
    let given = options.description.clone();
    let description =
        given.unwrap_or_else(|| LitStr::new(&function.doc_text(), function.ident.span()));
    if description.value().trim().is_empty() {
        return Err(Error::new(
            description.span(),
            "the model needs a description: add a doc comment",
        ));
    }
    Ok(description)
}

fn name(options: &Options, function: &Function) -> Result<LitStr> {
    if let Some(name) = &options.name {
        return Ok(name.clone());
    }
    let name = function.ident.unraw().to_string();
    if !is_tool_name(&name) {
        let text = format!(
            "{name:?} is no tool name (1 to 128 of A-Z a-z 0-9 _ . -): add `name = \"...\"`"
        );
        return Err(Error::new(function.ident.span(), text));
    }
    Ok(LitStr::new(&name, function.ident.span()))
}

/// The struct that the arguments are read into and that the schema is made from.
fn input(toolgate: &Path, function: &Function) -> TokenStream {
    let serde = quote!(#toolgate::__private::serde);
    let schemars = quote!(#toolgate::__private::schemars);
    let (serde_path, schemars_path) = (serde.to_string(), schemars.to_string());
    let fields = arguments(function).map(
        |Argument {
             ident,
             ty,
             attributes,
             ..
         }| quote!(#(#attributes)* #ident: #ty),
    );
    quote! {
        #[derive(#serde::Deserialize, #schemars::JsonSchema)]
        // A misspelt optional argument would otherwise be dropped without a word.
        #[serde(crate = #serde_path, deny_unknown_fields)]
        #[schemars(crate = #schemars_path)]
        #[allow(non_snake_case)]
        struct __Input {
            #(#fields,)*
        }
    }
}

fn spec(
    toolgate: &Path,
    options: &Options,
    function: &Function,
    description: &LitStr,
) -> Result<TokenStream> {
    let name = name(options, function)?;
    let annotations = annotations(toolgate, options, function)?;
    let output = output(toolgate, options, function)?;
    Ok(quote! {
        fn spec(&self) -> #toolgate::ToolSpec {
            #toolgate::ToolSpec::new(#name, #description, #toolgate::Schema::of::<__Input>())
                .with_annotations(#annotations)
                #output
        }
    })
}

fn output(toolgate: &Path, options: &Options, function: &Function) -> Result<Option<TokenStream>> {
    let Some(word) = &options.output else {
        return Ok(None);
    };
    match &function.returns.value {
        Some(_) if function.returns.is_tool_output() => Err(Error::new(
            word.span(),
            "a `ToolOutput` has no schema: return the value itself to use `output`",
        )),
        Some(value) => Ok(Some(
            quote!(.with_output(#toolgate::Schema::of::<#value>())),
        )),
        None => Err(Error::new_spanned(
            &function.returns.whole,
            "`output` needs the type written out: Result<T, E>",
        )),
    }
}

fn annotations(toolgate: &Path, options: &Options, function: &Function) -> Result<TokenStream> {
    let Options {
        kind,
        side_effect,
        hints,
        timeout_ms,
        long_running,
        cost,
        ..
    } = options;
    let fields = [
        assign(
            "kind",
            kind.as_ref().map(|kind| quote!(#toolgate::Kind::#kind)),
        ),
        assign(
            "side_effect",
            side_effect
                .as_ref()
                .map(|effect| quote!(#toolgate::SideEffect::#effect)),
        ),
        assign("timeout_ms", timeout_ms.map(|ms| quote!(#ms))),
        assign(
            "long_running",
            long_running
                .as_ref()
                .map(|label| quote!(::std::string::String::from(#label))),
        ),
        assign("cost", cost.map(|cost| quote!(#cost))),
    ];
    let resources: Vec<_> = options
        .resources
        .iter()
        .map(|one| resource(toolgate, one, function))
        .collect::<Result<_>>()?;
    Ok(quote!({
        #[allow(unused_mut)]
        let mut __annotations = #toolgate::Annotations::default();
        #(#fields)*
        #(__annotations.hints.#hints = ::core::option::Option::Some(true);)*
        #(__annotations.resources.push(#resources);)*
        __annotations
    }))
}

/// Sets a field of the annotations, if there is a value for it.
fn assign(field: &str, value: Option<TokenStream>) -> Option<TokenStream> {
    let field = format_ident!("{field}");
    value.map(|value| quote!(__annotations.#field = ::core::option::Option::Some(#value);))
}

fn resource(toolgate: &Path, resource: &Resource, function: &Function) -> Result<TokenStream> {
    let Resource {
        constructor,
        parameter,
    } = resource;
    let wanted = parameter.value();
    let Some(argument) = arguments(function).find(|argument| argument.ident.unraw() == wanted)
    else {
        let known: Vec<_> = arguments(function)
            .map(|argument| argument.ident.unraw().to_string())
            .collect();
        let known = if known.is_empty() {
            "none".to_owned()
        } else {
            known.join(", ")
        };
        let text = format!("there is no parameter `{wanted}`\nparameters: {known}");
        return Err(Error::new(parameter.span(), text));
    };
    let name = &argument.wire_name;
    Ok(quote!(#toolgate::Resource::#constructor(#name)))
}

fn invoke(toolgate: &Path, function: &Function) -> TokenStream {
    let Function {
        ident,
        parameters,
        returns,
        ..
    } = function;
    let passed = parameters.iter().map(|parameter| match parameter {
        Parameter::Argument(argument) => {
            let field = &argument.ident;
            quote!(__input.#field)
        }
        Parameter::Context(By::Reference) => quote!(&__context),
        Parameter::Context(By::Value) => quote!(__context),
    });
    let output = output_of(toolgate, returns);
    // A future that cannot be sent between threads is reported at the name of the function.
    quote_spanned! {generated_at(ident)=>
        async fn invoke(
            &self,
            __arguments: #toolgate::Arguments,
            __context: #toolgate::Context,
        ) -> ::core::result::Result<#toolgate::ToolOutput, #toolgate::ToolError> {
            let __input = #toolgate::typed::<__Input>(&__arguments)?;
            let __returned = #ident::call(#(#passed),*).await;
            #output
        }
    }
}

/// Turns what the function returned into the output. What does not fit is reported at the return type.
fn output_of(toolgate: &Path, returns: &Returns) -> TokenStream {
    let at = generated_at(&returns.whole);
    let unwrap = returns
        .fallible
        .then(|| quote_spanned!(at=> let __returned = __returned?;));
    let output = match returns.is_tool_output() {
        true => quote!(::core::result::Result::Ok),
        false => quote!(#toolgate::ToolOutput::of),
    };
    quote_spanned!(at=> #unwrap #output(__returned))
}

/// The place of what the user wrote, for code that is still known to be generated, so that lints leave it alone.
fn generated_at(written: &impl Spanned) -> Span {
    Span::call_site().located_at(written.span())
}

fn arguments(function: &Function) -> impl Iterator<Item = &Argument> {
    function.parameters.iter().filter_map(Parameter::argument)
}
