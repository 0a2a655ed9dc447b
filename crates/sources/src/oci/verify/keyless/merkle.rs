//! Proofs that an entry is in a log (RFC 9162, 2.1.3.2). Pure.

use super::Unfit;
use super::hash::sha256;

/// Hashes of a proof: a log of so many levels has more entries than can be counted.
const MOST: usize = 64;

/// The root of a log of `size` entries of which the one at `index` has this body, by the hashes of a proof.
pub(super) fn root(index: u64, size: u64, body: &[u8], hashes: &[Vec<u8>]) -> Result<[u8; 32], Unfit> {
    let unfit = || Unfit::new("its inclusion proof is not valid");
    if index >= size || hashes.len() > MOST {
        return Err(unfit());
    }
    let (mut place, mut last) = (index, size - 1);
    let mut hash = sha256(&[&[0], body]);
    for other in hashes {
        if other.len() != hash.len() || last == 0 {
            return Err(unfit());
        }
        if place & 1 == 1 || place == last {
            hash = sha256(&[&[1], other, &hash]);
            // Where it is the last of a level with nobody beside it, it goes up as it is.
            while place & 1 == 0 && place != 0 {
                (place, last) = (place >> 1, last >> 1);
            }
        } else {
            hash = sha256(&[&[1], &hash, other]);
        }
        (place, last) = (place >> 1, last >> 1);
    }
    if last == 0 { Ok(hash) } else { Err(unfit()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The root of these entries, and the hashes that lead there from one of them, as the definition has it.
    fn tree(entries: &[Vec<u8>], index: usize, path: &mut Vec<Vec<u8>>) -> [u8; 32] {
        if let [entry] = entries {
            return sha256(&[&[0], entry]);
        }
        let half = entries.len().next_power_of_two() / 2;
        let (left, right) = entries.split_at(half);
        let (mut ignored, is_left) = (Vec::new(), index < half);
        let (left, right) = if is_left {
            (tree(left, index, path), tree(right, 0, &mut ignored))
        } else {
            let left = tree(left, 0, &mut ignored);
            (left, tree(right, index - half, path))
        };
        path.push(if is_left { right.to_vec() } else { left.to_vec() });
        sha256(&[&[1], &left, &right])
    }

    proptest! {
        #[test]
        fn a_proof_leads_to_the_root_and_no_other_does(size in 1_usize..70, at in any::<prop::sample::Index>(), flip in any::<prop::sample::Index>()) {
            let entries: Vec<Vec<u8>> = (0..size).map(|number| number.to_string().into_bytes()).collect();
            let index = at.index(size);
            let mut path = Vec::new();
            let expected = tree(&entries, index, &mut path);
            let of = |index: usize, size: usize, path: &[Vec<u8>]| root(index as u64, size as u64, &entries[at.index(entries.len())], path).ok();
            prop_assert_eq!(of(index, size, &path), Some(expected));
            prop_assert_ne!(root(index as u64, size as u64, b"other", &path).ok(), Some(expected));
            prop_assert_ne!(of(index, size + 1, &[&path[..], &[vec![0; 32]]].concat()), Some(expected));
            prop_assert!(of(size, size, &path).is_none());
            if !path.is_empty() {
                let mut bad = path.clone();
                let which = flip.index(bad.len());
                bad[which][0] ^= 1;
                prop_assert_ne!(of(index, size, &bad), Some(expected));
                prop_assert_ne!(of(index, size, &path[1..]), Some(expected));
                bad[which].pop();
                prop_assert_eq!(of(index, size, &bad), None);
            }
        }
    }
}
