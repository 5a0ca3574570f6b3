//! Reads the return type: a plain value or a `Result`, and what a good outcome holds.

use syn::{GenericArgument, PathArguments, PathSegment, ReturnType, Type, parse_quote};

/// What the function returns, judged by how the type is written.
pub(crate) struct Returns {
    /// The type as written; `()` if there is none.
    pub(crate) whole: Type,
    /// Whether it is a `Result`.
    pub(crate) fallible: bool,
    /// The value when all goes well, unless an alias hides it.
    pub(crate) value: Option<Type>,
}

impl Returns {
    /// Reads the part after the arrow.
    pub(crate) fn of(output: &ReturnType) -> Self {
        let whole: Type = match output {
            ReturnType::Default => parse_quote!(()),
            ReturnType::Type(_, ty) => (**ty).clone(),
        };
        match last_segment(&whole).filter(|last| last.ident == "Result") {
            Some(result) => Self {
                fallible: true,
                value: first_type(result),
                whole,
            },
            None => Self {
                fallible: false,
                value: Some(whole.clone()),
                whole,
            },
        }
    }

    /// Whether the value is a `ToolOutput` already.
    pub(crate) fn is_tool_output(&self) -> bool {
        self.value
            .as_ref()
            .and_then(last_segment)
            .is_some_and(|last| last.ident == "ToolOutput")
    }
}

/// The type without parentheses, and without the invisible ones that macros leave.
pub(crate) fn plain(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => plain(&group.elem),
        Type::Paren(paren) => plain(&paren.elem),
        other => other,
    }
}

/// The last name of a path, which is what people know a type by.
pub(crate) fn last_segment(ty: &Type) -> Option<&PathSegment> {
    match plain(ty) {
        Type::Path(path) => path.path.segments.last(),
        _ => None,
    }
}

fn first_type(segment: &PathSegment) -> Option<Type> {
    let PathArguments::AngleBracketed(arguments) = &segment.arguments else {
        return None;
    };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty.clone()),
        _ => None,
    })
}
