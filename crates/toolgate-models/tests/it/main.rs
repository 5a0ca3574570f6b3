//! Tests of models: providers against their official clients, and cassettes. One program, so that
//! it is linked once.

mod cassettes;
mod embeddings;
mod providers;
