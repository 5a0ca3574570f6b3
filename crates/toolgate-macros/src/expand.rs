//! Generates the code of a tool: the struct, the function and the implementation of `Tool`.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::{Error, LitStr, Path, Result, ext::IdentExt, parse_quote, spanned::Spanned};

use crate::{
    function::ToolFunction,
    options::{MacroOptions, ResourceOption},
    parameter::{PassMode, ToolArgument, ToolParameter},
    returns::ReturnedType,
    words::is_tool_name,
};

/// Generates the tool from `function` and `options`.
pub(crate) fn expand_tool(options: &MacroOptions, function: &ToolFunction) -> Result<TokenStream> {
    let toolgate = options
        .toolgate
        .clone()
        .unwrap_or_else(|| parse_quote!(::toolgate));
    let description = tool_description(options, function)?;
    let spec = spec_method(&toolgate, options, function, &description)?;
    let invoke = invoke_method(&toolgate, function);
    let input = input_struct(&toolgate, function);
    let implementor = implementor(&toolgate, function);
    let host_values = host_values_method(&toolgate, function);
    let ToolFunction {
        vis,
        ident,
        attributes,
        call,
        ..
    } = function;
    let cfgs = &attributes.cfgs;
    // Without a doc comment the description is used, so that `missing_docs` does not fire.
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

        // An anonymous scope: the input struct is not visible outside, but the user's names are
        // visible inside.
        #(#cfgs)*
        const _: () = {
            #input
            #implementor {
                #spec
                #invoke
                #host_values
            }
        };
    })
}

/// Generates the head of the implementation of `Tool`: for the unit struct itself or, if the tool
/// needs state, for a struct with the state, which `with_state` returns.
fn implementor(toolgate: &Path, function: &ToolFunction) -> TokenStream {
    let ToolFunction { vis, ident, .. } = function;
    let tool = quote!(#toolgate::__private::Tool);
    let Some(state) = function.state() else {
        return quote!(impl #tool for #ident);
    };
    quote! {
        #[derive(::core::clone::Clone)]
        struct __ToolWithState(#state);

        impl #ident {
            /// Returns the tool with its state, ready to be registered. Each call gets a clone of it.
            #vis fn with_state(self, state: #state) -> impl #tool + ::core::clone::Clone {
                __ToolWithState(state)
            }
        }

        impl #tool for __ToolWithState
    }
}

fn tool_description(options: &MacroOptions, function: &ToolFunction) -> Result<LitStr> {
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

fn resolve_tool_name(options: &MacroOptions, function: &ToolFunction) -> Result<LitStr> {
    if let Some(name) = &options.name {
        return Ok(name.clone());
    }
    let name = function.ident.unraw().to_string();
    if !is_tool_name(&name) {
        let text = format!(
            "{name:?} is not a valid tool name (1 to 128 of A-Z a-z 0-9 _ . -): add `name = \"...\"`"
        );
        return Err(Error::new(function.ident.span(), text));
    }
    Ok(LitStr::new(&name, function.ident.span()))
}

/// Generates the list of the parameters that the program has to fill, if there are any.
fn host_values_method(toolgate: &Path, function: &ToolFunction) -> Option<TokenStream> {
    let by_host: Vec<&String> = function_arguments(function)
        .filter(|argument| argument.by_host)
        .map(|argument| &argument.wire_name)
        .collect();
    (!by_host.is_empty()).then(|| {
        quote! {
            fn host_values(&self) -> #toolgate::__private::HostValues {
                #toolgate::__private::HostValues::required([#(#by_host),*])
            }
        }
    })
}

/// Generates the struct that the arguments are deserialized into and the schema is derived from.
fn input_struct(toolgate: &Path, function: &ToolFunction) -> TokenStream {
    let serde = quote!(#toolgate::__private::serde);
    let schemars = quote!(#toolgate::__private::schemars);
    let serde_path = serde.to_string();
    let schemars_path = schemars.to_string();
    let assertions = argument_assertions(toolgate, function);
    let fields = function_arguments(function).map(
        |ToolArgument {
             ident,
             ty,
             attributes,
             ..
         }| quote!(#(#attributes)* #ident: #ty),
    );
    quote! {
        #assertions

        #[derive(#serde::Deserialize, #schemars::JsonSchema)]
        // A misspelled optional argument would otherwise be ignored silently.
        #[serde(crate = #serde_path, deny_unknown_fields)]
        #[schemars(crate = #schemars_path)]
        #[allow(non_snake_case)]
        struct __Input {
            #(#fields,)*
        }
    }
}

/// Generates checks of the argument types whose errors say what to derive.
fn argument_assertions(toolgate: &Path, function: &ToolFunction) -> TokenStream {
    // With attributes of serde or schemars a type may need neither trait (`with = …`).
    let plain = function_arguments(function).filter(|argument| !argument.has_serde_attribute());
    plain
        .map(|ToolArgument { ty, .. }| {
            let at = generated_at(ty);
            quote_spanned!(at=> const _: () = #toolgate::__private::assert_argument::<#ty>();)
        })
        .collect()
}

fn spec_method(
    toolgate: &Path,
    options: &MacroOptions,
    function: &ToolFunction,
    description: &LitStr,
) -> Result<TokenStream> {
    let name = resolve_tool_name(options, function)?;
    let annotations = annotations_block(toolgate, options, function)?;
    let output = output_schema(toolgate, options, function)?;
    Ok(quote! {
        fn spec(&self) -> #toolgate::__private::ToolSpec {
            #toolgate::__private::ToolSpec::new(#name, #description, #toolgate::__private::Schema::for_type::<__Input>())
                .with_annotations(#annotations)
                #output
        }
    })
}

fn output_schema(
    toolgate: &Path,
    options: &MacroOptions,
    function: &ToolFunction,
) -> Result<Option<TokenStream>> {
    let Some(word) = &options.output else {
        return Ok(None);
    };
    match &function.returns.value {
        Some(_) if function.returns.is_tool_output() => Err(Error::new(
            word.span(),
            "a `ToolOutput` has no schema: return the value itself to use `output`",
        )),
        Some(value) => Ok(Some(
            quote!(.with_output(#toolgate::__private::Schema::for_type::<#value>())),
        )),
        None => Err(Error::new_spanned(
            &function.returns.whole,
            "`output` needs the full type: Result<T, E>",
        )),
    }
}

fn annotations_block(
    toolgate: &Path,
    options: &MacroOptions,
    function: &ToolFunction,
) -> Result<TokenStream> {
    let MacroOptions {
        kind,
        side_effect,
        hints,
        timeout_ms,
        long_running,
        cost,
        ..
    } = options;
    let fields = [
        assign_field(
            "kind",
            kind.as_ref()
                .map(|kind| quote!(#toolgate::__private::ToolKind::#kind)),
        ),
        assign_field(
            "side_effect",
            side_effect
                .as_ref()
                .map(|effect| quote!(#toolgate::__private::SideEffect::#effect)),
        ),
        assign_field("timeout_ms", timeout_ms.map(|ms| quote!(#ms))),
        assign_field(
            "long_running",
            long_running
                .as_ref()
                .map(|label| quote!(::std::string::String::from(#label))),
        ),
        assign_field("cost", cost.map(|cost| quote!(#cost))),
    ];
    let resources: Vec<_> = options
        .resources
        .iter()
        .map(|one| resource_expr(toolgate, one, function))
        .collect::<Result<_>>()?;
    Ok(quote!({
        #[allow(unused_mut)]
        let mut __annotations = #toolgate::__private::Annotations::default();
        #(#fields)*
        #(__annotations.hints.#hints = ::core::option::Option::Some(true);)*
        #(__annotations.resources.push(#resources);)*
        __annotations
    }))
}

/// Generates the assignment of a field of the annotations, if there is a value for it.
fn assign_field(field: &str, value: Option<TokenStream>) -> Option<TokenStream> {
    let field = format_ident!("{field}");
    value.map(|value| quote!(__annotations.#field = ::core::option::Option::Some(#value);))
}

fn resource_expr(
    toolgate: &Path,
    resource: &ResourceOption,
    function: &ToolFunction,
) -> Result<TokenStream> {
    let ResourceOption {
        constructor,
        parameter,
    } = resource;
    let wanted = parameter.value();
    let Some(argument) =
        function_arguments(function).find(|argument| argument.ident.unraw() == wanted)
    else {
        let known: Vec<_> = function_arguments(function)
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
    Ok(quote!(#toolgate::__private::Resource::#constructor(#name)))
}

fn invoke_method(toolgate: &Path, function: &ToolFunction) -> TokenStream {
    let ToolFunction {
        ident,
        parameters,
        returns,
        ..
    } = function;
    let passed = parameters.iter().map(|parameter| match parameter {
        ToolParameter::Argument(argument) => {
            let field = &argument.ident;
            quote!(__input.#field)
        }
        ToolParameter::Context(PassMode::Reference) => quote!(&__context),
        ToolParameter::Context(PassMode::Value) => quote!(__context),
        ToolParameter::State(_) => {
            quote!(#toolgate::__private::State(::core::clone::Clone::clone(&self.0)))
        }
    });
    let output = output_expr(toolgate, returns);
    // A future that cannot be sent between threads is reported at the name of the function.
    quote_spanned! {generated_at(ident)=>
        async fn invoke(
            &self,
            __arguments: #toolgate::__private::Arguments,
            __context: #toolgate::__private::Context,
        ) -> ::core::result::Result<#toolgate::__private::ToolOutput, #toolgate::__private::ToolError> {
            let __input = #toolgate::__private::parse_arguments::<__Input>(&__arguments)?;
            let __returned = #ident::call(#(#passed),*).await;
            #output
        }
    }
}

/// Generates the conversion of the returned value into the output. A type error in it is reported at
/// the return type.
fn output_expr(toolgate: &Path, returns: &ReturnedType) -> TokenStream {
    let at = generated_at(&returns.whole);
    let unwrap = returns
        .fallible
        .then(|| quote_spanned!(at=> let __returned = __returned?;));
    let output = if returns.is_tool_output() {
        quote!(::core::result::Result::Ok)
    } else {
        quote!(#toolgate::__private::ToolOutput::from_value)
    };
    quote_spanned!(at=> #unwrap #output(__returned))
}

/// Returns the location of the user's code for generated code. The code still counts as generated,
/// so that lints skip it.
fn generated_at(written: &impl Spanned) -> Span {
    Span::call_site().located_at(written.span())
}

fn function_arguments(function: &ToolFunction) -> impl Iterator<Item = &ToolArgument> {
    function
        .parameters
        .iter()
        .filter_map(ToolParameter::argument)
}
