use toolgate::tool;

struct Money(u32);

/// Sends money back.
#[tool]
async fn refund(amount: Money) -> u32 {
    amount.0
}

#[derive(serde::Deserialize)]
struct Place(u32);

/// Goes there.
#[tool]
async fn visit(place: Place) -> u32 {
    place.0
}

fn main() {}
