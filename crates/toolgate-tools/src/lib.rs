//! Built-in tools: files below a root, search, patches, a sandboxed shell, fetching.
