use toolgate::*;

struct Files;

impl Files {
    /// Reads a file.
    #[tool]
    async fn read(&self, path: String) -> String {
        path
    }
}

fn main() {}
