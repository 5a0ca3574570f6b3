//! Makes a failing input smaller, so that a person sees what is wrong with it.

/// The most inputs that are tried.
const MAX_TRIES: usize = 2000;

/// Removes parts of the input as long as `fails` holds for the rest.
pub(super) fn shrink_input(input: &[u8], mut fails: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
    let mut smallest = input.to_vec();
    let mut size = smallest.len().div_ceil(2);
    let mut tries = 0;
    while size > 0 {
        let mut at = 0;
        while at < smallest.len() && tries < MAX_TRIES {
            tries += 1;
            let mut shorter = smallest.clone();
            drop(shorter.drain(at..(at + size).min(smallest.len())));
            if fails(&shorter) {
                smallest = shorter;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    smallest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_matter_is_removed() {
        let fails =
            |input: &[u8]| input.windows(2).any(|pair| pair == b"xy") && input.contains(&b'!');
        let input = b"a long text with xy somewhere and more of it! and an end";
        assert_eq!(shrink_input(input, fails), b"xy!");
    }
}
