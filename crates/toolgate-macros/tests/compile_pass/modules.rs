//! A tool has the visibility of its function, and can use the names of its module.

#![deny(warnings, missing_docs, unreachable_pub, private_interfaces)]

/// Tools about shapes.
pub mod shapes {
    use toolgate::__private::{
        schemars::{self, JsonSchema},
        serde::{self, Deserialize, Serialize},
    };
    use toolgate::tool;

    /// The macro uses no such name itself.
    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(crate = "serde")]
    #[schemars(crate = "schemars")]
    pub struct Input {
        side: f64,
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(crate = "serde")]
    #[schemars(crate = "schemars")]
    struct Private {
        side: f64,
    }

    /// Computes an area.
    #[tool]
    pub async fn area(input: Input, arguments: Option<String>) -> f64 {
        drop(arguments);
        super::square(input.side)
    }

    /// Uses a private type.
    #[tool(output)]
    async fn twice(shape: Private) -> Private {
        Private {
            side: shape.side * 2.0,
        }
    }

    /// Is visible to the crate.
    #[tool(description = "Described here.")]
    pub(crate) async fn shared() -> bool {
        let same = twice::call(Private { side: 1.0 }).await;
        same.side > 1.0
    }

    #[tool(description = "Has no doc comment.")]
    pub async fn undocumented() {}

    /// Lists the tools of this module.
    pub fn register(registry: &toolgate::Registry) {
        registry.register(twice).expect("free");
    }
}

fn square(side: f64) -> f64 {
    side * side
}

fn main() {
    let registry = toolgate::Registry::new();
    registry.register(shapes::area).expect("free");
    registry.register(shapes::shared).expect("free");
    registry.register(shapes::undocumented).expect("free");
    shapes::register(&registry);
    assert_eq!(registry.len(), 4);
    drop(shapes::shared::call());
}
