//! The prelude beside the names that web programs import: none of them collides.

// Globs on both sides: a name that both had would be ambiguous where it is used below.
use self::web::*;
use toolgate::prelude::*;

/// What programs import from axum, tower and anyhow.
mod web {
    pub(crate) use anyhow::{Context, Error, Result, anyhow};
    pub(crate) use axum::{
        Json, Router,
        extract::{Request, State},
        middleware::{Next, from_fn},
        response::Response,
        routing::get,
    };
    pub(crate) use tower::{Layer, Service, ServiceBuilder, ServiceExt};
}

/// Says how many of an article are in stock.
#[tool(read_only)]
async fn in_stock(article: String) -> Result<u32, ToolError> {
    let _ = article;
    Ok(3)
}

/// Reads as a handler of axum: the names are those of axum and anyhow.
async fn handler(State(stack): State<Stack>) -> Json<String> {
    Json(
        run_tool(&stack)
            .await
            .unwrap_or_else(|error| error.to_string()),
    )
}

async fn run_tool(stack: &Stack) -> Result<String> {
    let arguments = Arguments::parse(r#"{ "article": "lamp" }"#).context("the arguments")?;
    let outcome: Outcome = stack.run(Call::detached("in_stock", arguments)).await;
    let settled = outcome.settled().ok_or_else(|| anyhow!("it waits"))?;
    Ok(settled.model_text().into_owned())
}

async fn pass(request: Request, next: Next) -> Response {
    next.run(request).await
}

#[tokio::test]
async fn the_prelude_stands_beside_axum_tower_and_anyhow() -> Result<(), Error> {
    let registry = Registry::new();
    registry.register(in_stock)?;
    let stack = Stack::over(registry).build()?;
    assert_eq!(run_tool(&stack).await?, "3");
    let router: Router = Router::new()
        .route("/", get(handler))
        .layer(from_fn(pass))
        .with_state(stack);
    let service = ServiceBuilder::new().service(router);
    let request: Request = Request::default();
    let response = service.oneshot(request).await?;
    assert!(response.status().is_success());
    Ok(())
}

/// Uses the traits, so that their names are resolved too.
#[allow(dead_code)]
fn named_traits<S, L: Layer<S>>(layer: &L, service: S) -> L::Service
where
    L::Service: Service<Request>,
{
    layer.layer(service)
}
