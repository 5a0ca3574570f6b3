use toolgate::*;

/// Adds.
#[tool]
async fn add<T: Send>(a: T) {}

/// Looks.
#[tool]
async fn look<'a>(cx: &'a Context) {}

/// Looks again.
#[tool]
async fn look_again()
where
    String: Send,
{
}

fn main() {}
