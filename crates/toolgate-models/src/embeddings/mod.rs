//! Embedders: texts become vectors, so that search finds what was said in other words.
//!
//! `LocalEmbedder` is built in and needs neither key nor network. `EndpointEmbedder` asks any server
//! with an OpenAI-compatible `/embeddings`.

#[cfg(feature = "http")]
pub(crate) mod endpoint;
#[cfg(feature = "local-embeddings")]
pub(crate) mod local;

/// The largest number of dimensions of a vector, of any embedder.
const MAX_DIMENSIONS: usize = 4_096;

/// Scales a vector to length 1; returns `false` if a value or the length is not finite.
///
/// A vector of zeros stays as it is: it is similar to nothing.
fn normalize(vector: &mut [f32]) -> bool {
    // In f64, because squares of large values are beyond f32.
    let square: f64 = vector.iter().map(|value| f64::from(*value).powi(2)).sum();
    let length = square.sqrt();
    if !length.is_finite() {
        return false;
    }
    if length > 0.0 {
        for value in vector {
            *value = (f64::from(*value) / length) as f32;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_has_length_one_unless_it_is_zero_or_not_finite() {
        let mut vector = [3.0, 4.0];
        assert!(normalize(&mut vector));
        assert_eq!(vector, [0.6, 0.8]);
        let mut zeros = [0.0, 0.0];
        assert!(normalize(&mut zeros));
        assert_eq!(zeros, [0.0, 0.0]);
        let mut large = [f32::MAX, f32::MAX];
        assert!(normalize(&mut large), "squares beyond f32 are no problem");
        assert!((large[0] - std::f32::consts::FRAC_1_SQRT_2).abs() < 1e-6);
        assert!(!normalize(&mut [f32::NAN, 1.0]));
        assert!(!normalize(&mut [f32::INFINITY, 1.0]));
    }
}
