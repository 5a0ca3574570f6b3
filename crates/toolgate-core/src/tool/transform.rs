//! Transforms that rewrite a spec before the model sees it.

use std::any::TypeId;

use crate::{LayerName, ToolSpec};

/// A pure rewrite: a spec goes in, a spec or nothing comes out.
///
/// A transform may drop a tool, rewrite its description or inject a parameter. It may not rename a
/// tool or change an existing parameter: building the view fails then. The registry keeps the
/// original either way.
///
/// ```
/// use toolgate_core::{LayerName, ToolSpec, Transform};
///
/// struct Polite;
///
/// impl Transform for Polite {
///     fn name(&self) -> LayerName {
///         "polite".into()
///     }
///     fn transform(&self, mut spec: ToolSpec) -> Option<ToolSpec> {
///         spec.description.push_str(" Please.");
///         Some(spec)
///     }
/// }
/// ```
pub trait Transform: Send + Sync + 'static {
    /// Returns the transform's name; the view stores it with every injected parameter.
    fn name(&self) -> LayerName;

    /// Returns the type of the transform. The view stores it too, so that a layer recognises the
    /// parameters that it injected; a wrapper returns the type of what it wraps.
    fn origin(&self) -> TypeId {
        TypeId::of::<Self>()
    }

    /// Rewrites one spec, or drops the tool.
    fn transform(&self, spec: ToolSpec) -> Option<ToolSpec>;
}
