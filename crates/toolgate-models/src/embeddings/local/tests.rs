//! The bundled model and files that are damaged.

use proptest::prelude::*;
use serde::Deserialize;

use super::{
    model_file::{StaticModel, write_file},
    *,
};

/// The sentences and vectors that `assets/distil.py` computed.
const EXPECTED: &str = include_str!("../../../assets/minilm-static-256.expected.json");

#[derive(Deserialize)]
struct ExpectedVector {
    text: String,
    /// The first dimensions.
    first: Vec<f32>,
    /// The sum of the squares of the other dimensions, with the signs of the values.
    rest: f32,
}

async fn embed(texts: &[&str]) -> Vec<Vec<f32>> {
    let vectors = LocalEmbedder::new().embed(texts).await;
    vectors.expect("the bundled model can be loaded")
}

fn similarity(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn length(vector: &[f32]) -> f32 {
    similarity(vector, vector).sqrt()
}

fn leak(file: Vec<u8>) -> &'static [u8] {
    file.leak()
}

#[tokio::test]
async fn vectors_are_those_that_the_distilling_script_computed() {
    let expected: Vec<ExpectedVector> = serde_json::from_str(EXPECTED).expect("the fixture");
    assert!(expected.len() >= 5);
    for case in expected {
        let vector = embed(&[&case.text]).await.remove(0);
        let (first, rest) = vector.split_at(case.first.len());
        for (found, expected) in first.iter().zip(&case.first) {
            assert!((found - expected).abs() < 1e-5, "{}: {first:?}", case.text);
        }
        let rest: f32 = rest.iter().map(|value| value * value.abs()).sum();
        assert!((rest - case.rest).abs() < 1e-4, "{}: {rest}", case.text);
    }
}

#[tokio::test]
async fn the_same_text_has_the_same_vector_wherever_it_stands() {
    let texts = ["the build is slow", "naïve café", "x"];
    let together = embed(&texts).await;
    for (text, vector) in texts.iter().zip(&together) {
        assert_eq!(&embed(&[text]).await[0], vector, "{text}");
        assert!((length(vector) - 1.0).abs() < 1e-5);
        assert_eq!(vector.len(), LocalEmbedder::new().dimensions());
    }
    assert_eq!(embed(&[]).await.len(), 0);
}

#[tokio::test]
async fn similar_sentences_are_nearer_than_unrelated_ones() {
    for (text, similar, unrelated) in [
        (
            "the process was killed because it used too much memory",
            "worker eats all RAM",
            "please book a hotel near the station",
        ),
        (
            "give the customer his money back",
            "the client wants a refund of the payment",
            "the linker is slow",
        ),
        (
            "the certificate of the website has expired",
            "renew the TLS certificates of our site",
            "translate the brochure into French",
        ),
    ] {
        let vectors = embed(&[text, similar, unrelated]).await;
        let near = similarity(&vectors[0], &vectors[1]);
        let far = similarity(&vectors[0], &vectors[2]);
        assert!(near > far + 0.05, "{text}: {near} and {far}");
    }
}

#[tokio::test]
async fn spellings_of_one_identifier_have_one_vector() {
    let vectors = embed(&[
        "parsePhoneNumber",
        "parse_phone_number",
        "Parse phone number!",
    ])
    .await;
    assert_eq!(vectors[0], vectors[1]);
    assert_eq!(vectors[0], vectors[2]);
}

#[tokio::test]
async fn a_text_without_a_known_word_is_similar_to_nothing() {
    let long_word = "a".repeat(500);
    for text in ["", " \t\n", "🎉🎉", "\0\0", "…—!?", &long_word] {
        assert!(
            embed(&[text]).await[0].iter().all(|value| *value == 0.0),
            "{text:?}"
        );
    }
}

#[tokio::test]
async fn a_megabyte_of_any_kind_becomes_a_vector() {
    let megabyte = 1024 * 1024;
    for part in [
        "word ",
        "a",
        "\0",
        "🎉",
        "東",
        "e\u{301}",
        "aB",
        "\u{10ffff}",
    ] {
        let text = part.repeat(megabyte / part.len());
        let vector = embed(&[&text]).await.remove(0);
        let length = length(&vector);
        assert!(
            length < 1e-6 || (length - 1.0).abs() < 1e-4,
            "{part:?}: {length}"
        );
    }
}

#[tokio::test]
async fn chinese_and_emoji_beside_words_are_no_problem() {
    let vectors = embed(&["deploy 🚀 done", "deploy done", "東京", "東 京"]).await;
    assert_eq!(vectors[0], vectors[1]);
    assert_eq!(vectors[2], vectors[3]);
    assert!(
        length(&vectors[2]) > 0.9,
        "the vocabulary has these characters"
    );
}

#[test]
fn the_id_names_the_model_its_size_and_its_content() {
    let embedder = LocalEmbedder::new();
    let id = embedder.id().as_str();
    assert!(id.starts_with("local/minilm-static-256/"), "{id}");
    assert_eq!(embedder.dimensions(), 256);
    let other = LocalEmbedder::with_file(leak(write_file(2, &[("a", 1.0, vec![1, 2])])));
    let changed = LocalEmbedder::with_file(leak(write_file(2, &[("a", 1.0, vec![1, 3])])));
    assert_ne!(other.id(), changed.id(), "another vector is another model");
}

#[test]
fn nothing_is_loaded_before_the_first_text() {
    let embedder = LocalEmbedder::with_file(leak(write_file(1, &[("a", 1.0, vec![1])])));
    assert!(format!("{embedder:?}").contains("loaded: false"));
    // Without a runtime, too.
    let vectors = futures::executor::block_on(embedder.embed(&["a"])).expect("a model");
    assert_eq!(vectors, [[1.0]]);
    assert!(format!("{embedder:?}").contains("loaded: true"));
}

#[test]
fn a_word_is_cut_into_the_longest_pieces_or_is_unknown() {
    let tokens = [
        ("un", 1.0, vec![1, 0, 0]),
        ("unhappy", 1.0, vec![0, 1, 0]),
        ("##happy", 1.0, vec![0, 0, 1]),
        ("##ly", 0.5, vec![0, 0, 2]),
    ];
    let file = write_file(3, &tokens);
    let model = StaticModel::parse(&file).expect("a model");
    let vector = |text: &str| embed_text(&model, text);
    assert_eq!(vector("unhappy"), [0.0, 1.0, 0.0]);
    let half = std::f32::consts::FRAC_1_SQRT_2;
    assert_eq!(
        vector("Unhappily"),
        [0.0, 0.0, 0.0],
        "no piece for the rest"
    );
    assert_eq!(vector("unly"), [half, 0.0, half]);
    assert_eq!(vector("happy"), [0.0, 0.0, 0.0], "it only continues words");
    assert_ne!(vector("unlylyly"), [0.0, 0.0, 0.0], "four pieces");
    assert_eq!(vector("unlylylyly"), [0.0, 0.0, 0.0], "five pieces");
}

#[tokio::test]
async fn a_damaged_file_is_an_error_and_never_a_vector() {
    let tokens = [("a", 1.0, vec![1, 2]), ("##b", 2.0, vec![-3, 4])];
    let good = write_file(2, &tokens);
    assert!(StaticModel::parse(&good).is_ok());
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        assert!(StaticModel::parse(&bad).is_err(), "byte {at} was changed");
        assert!(
            StaticModel::parse(&good[..at]).is_err(),
            "{at} bytes are left"
        );
    }
    let mut longer = good.clone();
    longer.push(0);
    assert!(StaticModel::parse(&longer).is_err());
    let mut bad = good.clone();
    let last = bad.len() - 1;
    bad[last] ^= 1;
    let error = LocalEmbedder::with_file(leak(bad)).embed(&["a"]).await;
    let error = error.expect_err("a damaged file").to_string();
    assert!(
        error.contains("checksum") && error.contains("local/"),
        "{error}"
    );
}

#[test]
fn a_file_with_a_true_checksum_and_false_content_is_rejected() {
    for (tokens, expected) in [
        (
            vec![("a", 1.0, vec![1]), ("a", 1.0, vec![1])],
            "there twice",
        ),
        (vec![("", 1.0, vec![1])], "empty"),
        (vec![("##", 1.0, vec![1])], "empty"),
        (vec![("a\nb", 1.0, vec![1])], "a number of tokens of 1"),
        (vec![("a", f32::NAN, vec![1])], "scale of token 0"),
        (vec![("a", -1.0, vec![1])], "scale of token 0"),
        (vec![("a", f32::INFINITY, vec![1])], "scale of token 0"),
    ] {
        let error = StaticModel::parse(&write_file(1, &tokens)).err();
        let error = error.expect("rejected").to_string();
        assert!(error.contains(expected), "{tokens:?}: {error}");
    }
    let huge = write_file(0, &[]);
    assert!(StaticModel::parse(&huge).is_err(), "no dimensions");
}

proptest! {
    #[test]
    fn any_text_has_a_vector_of_length_one_or_zero(text in any::<String>()) {
        let tokens = [("a", 3.0, vec![1, -2]), ("##b", 2.0, vec![-3, 4]), ("é", 1.0, vec![9, 9])];
        let file = write_file(2, &tokens);
        let model = StaticModel::parse(&file).expect("a model");
        let found = length(&embed_text(&model, &text));
        prop_assert!(found == 0.0 || (found - 1.0).abs() < 1e-5);
    }

    #[test]
    fn any_bytes_are_read_or_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(StaticModel::parse(&bytes).is_err(), "a checksum is not met by chance");
    }
}
