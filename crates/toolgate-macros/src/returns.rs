//! Parses the return type: a plain value or a `Result`, and the type of the value.

use syn::{GenericArgument, PathArguments, PathSegment, ReturnType, Type, parse_quote};

/// The return type of the function, as far as its written form tells.
pub(crate) struct ReturnedType {
    /// The type as written; `()` if there is none.
    pub(crate) whole: Type,
    /// True if it is a `Result`.
    pub(crate) fallible: bool,
    /// The type of a successful value, unless an alias hides it.
    pub(crate) value: Option<Type>,
}

impl ReturnedType {
    /// Parses the part after the arrow.
    pub(crate) fn from_output(output: &ReturnType) -> Self {
        let whole: Type = match output {
            ReturnType::Default => parse_quote!(()),
            ReturnType::Type(_, ty) => (**ty).clone(),
        };
        match last_segment(&whole).filter(|last| last.ident == "Result") {
            Some(result) => Self {
                fallible: true,
                value: first_generic_type(result),
                whole,
            },
            None => Self {
                fallible: false,
                value: Some(whole.clone()),
                whole,
            },
        }
    }

    /// Checks whether the value is a `ToolOutput` already.
    pub(crate) fn is_tool_output(&self) -> bool {
        self.value
            .as_ref()
            .and_then(last_segment)
            .is_some_and(|last| last.ident == "ToolOutput")
    }
}

/// Returns the type without parentheses, and without the invisible groups that macros produce.
pub(crate) fn strip_parens(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => strip_parens(&group.elem),
        Type::Paren(paren) => strip_parens(&paren.elem),
        other => other,
    }
}

/// Returns the last segment of a path, which is the name of the type.
pub(crate) fn last_segment(ty: &Type) -> Option<&PathSegment> {
    match strip_parens(ty) {
        Type::Path(path) => path.path.segments.last(),
        _ => None,
    }
}

/// Returns the first type between the angle brackets.
pub(crate) fn first_generic_type(segment: &PathSegment) -> Option<Type> {
    let PathArguments::AngleBracketed(arguments) = &segment.arguments else {
        return None;
    };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty.clone()),
        _ => None,
    })
}
