//! The file of the static model: reads it, and never takes a damaged one for a model.
//!
//! All numbers are little-endian. The layout:
//!
//! | Bytes | What |
//! |---|---|
//! | 8 | `TGEMBED` and the version of the layout, 1 |
//! | 4 | dimensions of a vector |
//! | 4 | number of tokens |
//! | 4 | bytes of the vocabulary |
//! | 32 | SHA-256 of everything below |
//! | … | the vocabulary: one token per line, `##` before those that continue a word |
//! | 4 per token | its scale, f32 |
//! | dimensions per token | its vector, int8 |

use std::collections::HashMap;

use toolgate_core::Digest;

use crate::embeddings::MAX_DIMENSIONS;

const MAGIC: &[u8; 8] = b"TGEMBED\x01";
const HEADER_BYTES: usize = MAGIC.len() + 3 * 4 + 32;
/// The mark of a token that continues a word.
const CONTINUATION: &str = "##";
/// The largest scale: sums over a text stay far within f32.
const MAX_SCALE: f32 = 1e6;

/// The reason a file is not a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ModelFileError {
    /// It does not begin as such a file does.
    #[error("it is not a file of a static embedding model, version 1")]
    Foreign,
    /// The header cannot be true.
    #[error("its header has {what} of {found}, which cannot be")]
    Header { what: &'static str, found: usize },
    /// It is shorter or longer than its header says.
    #[error("it has {found} bytes instead of {expected}; the program is damaged")]
    Length { expected: usize, found: usize },
    /// Its content is not what was written.
    #[error("its checksum does not match its content; the program is damaged")]
    Checksum,
    /// The vocabulary is not valid.
    #[error("token {at} of its vocabulary is {problem}")]
    Token { at: usize, problem: &'static str },
    /// The vocabulary is not text.
    #[error("its vocabulary is not UTF-8")]
    Text,
    /// A scale is not a usable number.
    #[error("the scale of token {at} is not a number between 0 and {MAX_SCALE}")]
    Scale { at: usize },
}

/// The number of a token in the vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TokenIndex(u32);

/// A vector of int8 and a scale per token, and the vocabulary that finds them.
pub(crate) struct StaticModel<'f> {
    dimensions: usize,
    starts: HashMap<&'f str, u32>,
    continuations: HashMap<&'f str, u32>,
    longest_token: usize,
    scales: Vec<f32>,
    vectors: &'f [u8],
}

impl<'f> StaticModel<'f> {
    /// Reads a model.
    ///
    /// # Errors
    ///
    /// Fails if any byte of the file is not as it was written.
    pub(crate) fn parse(file: &'f [u8]) -> Result<Self, ModelFileError> {
        let header = ModelHeader::parse(file)?;
        let body = &file[HEADER_BYTES..];
        if body.len() != header.body_bytes()? {
            return Err(ModelFileError::Length {
                expected: HEADER_BYTES + header.body_bytes()?,
                found: file.len(),
            });
        }
        if Digest::of_bytes(body).as_bytes() != header.checksum {
            return Err(ModelFileError::Checksum);
        }
        let (vocabulary, rest) = body.split_at(header.vocabulary_bytes);
        let (scales, vectors) = rest.split_at(header.tokens * 4);
        let vocabulary = std::str::from_utf8(vocabulary).map_err(|_| ModelFileError::Text)?;
        let mut model = Self {
            dimensions: header.dimensions,
            starts: HashMap::with_capacity(header.tokens),
            continuations: HashMap::with_capacity(header.tokens / 4),
            longest_token: 0,
            scales: read_scales(scales)?,
            vectors,
        };
        model.read_vocabulary(vocabulary, header.tokens)?;
        Ok(model)
    }

    fn read_vocabulary(&mut self, text: &'f str, tokens: usize) -> Result<(), ModelFileError> {
        let mut count = 0;
        for (at, token) in text.lines().enumerate() {
            let (map, piece) = match token.strip_prefix(CONTINUATION) {
                Some(piece) => (&mut self.continuations, piece),
                None => (&mut self.starts, token),
            };
            let invalid = |problem| ModelFileError::Token { at, problem };
            if piece.is_empty() {
                return Err(invalid("empty"));
            }
            let index = u32::try_from(at).map_err(|_| invalid("beyond the limit"))?;
            if map.insert(piece, index).is_some() {
                return Err(invalid("there twice"));
            }
            self.longest_token = self.longest_token.max(piece.len());
            count = at + 1;
        }
        if count != tokens {
            return Err(ModelFileError::Header {
                what: "a number of tokens",
                found: tokens,
            });
        }
        Ok(())
    }

    /// Returns the number of dimensions.
    pub(crate) fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// Returns the number of bytes of the longest token.
    pub(crate) fn longest_token(&self) -> usize {
        self.longest_token
    }

    /// Finds a token that begins a word.
    pub(crate) fn find_start(&self, piece: &str) -> Option<TokenIndex> {
        self.starts.get(piece).copied().map(TokenIndex)
    }

    /// Finds a token that continues a word.
    pub(crate) fn find_continuation(&self, piece: &str) -> Option<TokenIndex> {
        self.continuations.get(piece).copied().map(TokenIndex)
    }

    /// Adds the vector of a token.
    pub(crate) fn add_to(&self, token: TokenIndex, sum: &mut [f32]) {
        let at = token.0 as usize;
        let scale = self.scales[at];
        let row = &self.vectors[at * self.dimensions..][..self.dimensions];
        for (sum, value) in sum.iter_mut().zip(row) {
            *sum += f32::from(value.cast_signed()) * scale;
        }
    }
}

/// The numbers at the beginning of a file.
struct ModelHeader<'f> {
    dimensions: usize,
    tokens: usize,
    vocabulary_bytes: usize,
    checksum: &'f [u8],
}

impl<'f> ModelHeader<'f> {
    fn parse(file: &'f [u8]) -> Result<Self, ModelFileError> {
        let rest = file.strip_prefix(MAGIC).ok_or(ModelFileError::Foreign)?;
        let (numbers, rest) = rest
            .split_first_chunk::<12>()
            .ok_or(ModelFileError::Foreign)?;
        let checksum = rest.get(..32).ok_or(ModelFileError::Foreign)?;
        let number = |at: usize| {
            let bytes = [0, 1, 2, 3].map(|byte| numbers[4 * at + byte]);
            u32::from_le_bytes(bytes) as usize
        };
        let header = Self {
            dimensions: number(0),
            tokens: number(1),
            vocabulary_bytes: number(2),
            checksum,
        };
        if header.dimensions == 0 || header.dimensions > MAX_DIMENSIONS {
            return Err(ModelFileError::Header {
                what: "dimensions",
                found: header.dimensions,
            });
        }
        Ok(header)
    }

    /// Returns the number of bytes after the header, which is all that is allocated for.
    fn body_bytes(&self) -> Result<usize, ModelFileError> {
        let per_token = 4 + self.dimensions;
        self.tokens
            .checked_mul(per_token)
            .and_then(|bytes| bytes.checked_add(self.vocabulary_bytes))
            .ok_or(ModelFileError::Header {
                what: "a number of tokens",
                found: self.tokens,
            })
    }
}

fn read_scales(bytes: &[u8]) -> Result<Vec<f32>, ModelFileError> {
    let (scales, _) = bytes.as_chunks::<4>();
    let valid = |(at, bytes): (usize, &[u8; 4])| {
        let scale = f32::from_le_bytes(*bytes);
        let usable = (0.0..=MAX_SCALE).contains(&scale);
        usable.then_some(scale).ok_or(ModelFileError::Scale { at })
    };
    scales.iter().enumerate().map(valid).collect()
}

/// Returns the name of the model in a file, which changes with its content.
pub(super) fn name_from_header(file: &[u8]) -> String {
    // `words-1` is the version of how texts become pieces.
    match ModelHeader::parse(file) {
        Ok(header) => {
            let mark: String = header.checksum[..4]
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            format!("local/minilm-static-{}/{mark}/words-1", header.dimensions)
        }
        Err(_) => "local/unknown".to_owned(),
    }
}

/// Returns the number of dimensions that a header names; 0 if it is not one.
pub(super) fn dimensions_from_header(file: &[u8]) -> usize {
    ModelHeader::parse(file).map_or(0, |header| header.dimensions)
}

/// Writes a header with a true checksum before the content of a file, for tests and fuzzing.
#[cfg(any(test, feature = "http"))]
pub(crate) fn seal_file(header: [u32; 3], body: &[u8]) -> Vec<u8> {
    let numbers = header.into_iter().flat_map(u32::to_le_bytes);
    let mut file = MAGIC.to_vec();
    file.extend(numbers);
    file.extend_from_slice(Digest::of_bytes(body).as_bytes());
    file.extend_from_slice(body);
    file
}

/// Writes a file, for tests.
#[cfg(test)]
pub(super) fn write_file(dimensions: usize, tokens: &[(&str, f32, Vec<i8>)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (token, ..) in tokens {
        body.extend_from_slice(token.as_bytes());
        body.push(b'\n');
    }
    let vocabulary = body.len();
    for (_, scale, _) in tokens {
        body.extend_from_slice(&scale.to_le_bytes());
    }
    for (.., vector) in tokens {
        body.extend(vector.iter().map(|value| value.cast_unsigned()));
    }
    let header = [dimensions, tokens.len(), vocabulary];
    seal_file(
        header.map(|number| u32::try_from(number).expect("a small number")),
        &body,
    )
}
