//! A secret out of its shares, by Shamir's scheme over the field of 256 elements, as HashiCorp's Vault writes shares.
//!
//! A share is a y for each byte of the secret and, at its end, the x that they belong to.

use zeroize::Zeroizing;

/// Why shares give no secret. Each is named by its key group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ShareError {
    /// Fewer than two.
    #[error("{0} of at least two shares were recovered")]
    TooFew(usize),
    /// One has no byte of a secret.
    #[error("the share of group {group} has {bytes} of at least two bytes")]
    TooShort {
        /// Whose it is.
        group: usize,
        /// How many it has.
        bytes: usize,
    },
    /// They are not shares of one secret.
    #[error(
        "the shares of groups {} and {} have {} and {} bytes, and should have the same length: one of them is wrong",
        .one.0, .other.0, .one.1, .other.1
    )]
    Lengths {
        /// A group and the bytes of its share.
        one: (usize, usize),
        /// The same of the one that differs.
        other: (usize, usize),
    },
    /// One is there twice, or is a copy.
    #[error("the shares of groups {0} and {1} have the same number: one of them is wrong, or a copy")]
    Duplicate(usize, usize),
}

/// A share, with the number of the key group that it is of.
pub(crate) type Share = (usize, Zeroizing<Vec<u8>>);

/// Combines all shares that there are. A share too many does no harm; a wrong one gives a wrong secret.
pub(crate) fn combine(shares: &[Share]) -> Result<Zeroizing<Vec<u8>>, ShareError> {
    let (Some((group, first)), true) = (shares.first(), shares.len() > 1) else {
        return Err(ShareError::TooFew(shares.len()));
    };
    let one = (*group, first.len());
    let mut points: Vec<(u8, &[u8])> = Vec::with_capacity(shares.len());
    for (group, share) in shares {
        if share.len() != first.len() {
            return Err(ShareError::Lengths { one, other: (*group, share.len()) });
        }
        let Some((x, ys)) = share.split_last().filter(|(_, ys)| !ys.is_empty()) else {
            return Err(ShareError::TooShort { group: *group, bytes: share.len() });
        };
        if let Some(same) = points.iter().position(|(other, _)| other == x) {
            let of = shares.get(same).map_or(*group, |(of, _)| *of);
            return Err(ShareError::Duplicate(of, *group));
        }
        points.push((*x, ys));
    }
    let mut secret = Zeroizing::new(vec![0; first.len() - 1]);
    for (index, (x, ys)) in points.iter().enumerate() {
        // Lagrange's polynomial of this point, at zero.
        let others = points.iter().enumerate().filter(|(other, _)| *other != index);
        let factor = others.fold(1, |product, (_, (other, _))| multiply(product, divide(*other, x ^ other)));
        secret.iter_mut().zip(ys.iter()).for_each(|(byte, y)| *byte ^= multiply(*y, factor));
    }
    Ok(secret)
}

/// Multiplication modulo x⁸+x⁴+x³+x+1, in the same time for all factors.
fn multiply(mut a: u8, b: u8) -> u8 {
    let mut product = 0;
    for bit in 0..8 {
        product ^= a & mask(b >> bit);
        a = a << 1 ^ 0x1b & mask(a >> 7);
    }
    product
}

/// All ones where the last bit is set.
fn mask(bit: u8) -> u8 {
    (bit & 1).wrapping_neg()
}

/// Division by what is not zero, by Fermat: the inverse is the 254th power.
fn divide(a: u8, b: u8) -> u8 {
    let mut power = b;
    let mut inverse = 1;
    for _ in 0..7 {
        power = multiply(power, power);
        inverse = multiply(inverse, power);
    }
    multiply(a, inverse)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a polynomial with these coefficients is at x, the secret being the first.
    fn at(coefficients: &[u8], x: u8) -> u8 {
        coefficients.iter().rev().fold(0, |sum, coefficient| multiply(sum, x) ^ coefficient)
    }

    proptest! {
        #[test]
        fn shares_give_their_secret(
            secret in prop::collection::vec(any::<u8>(), 1..40),
            degree in 1_usize..5,
            seed in prop::collection::vec(any::<u8>(), 200),
            more in 0_u8..3,
        ) {
            let share = |x: u8| {
                let mut bytes: Vec<u8> = secret.iter().enumerate().map(|(index, byte)| {
                    let mut coefficients = vec![*byte];
                    coefficients.extend(seed.iter().skip(index * 4).take(degree));
                    at(&coefficients, x)
                }).collect();
                bytes.push(x);
                Zeroizing::new(bytes)
            };
            let count = u8::try_from(degree).unwrap() + 1 + more;
            let shares: Vec<_> = (1..=count).map(|x| (usize::from(x), share(x))).collect();
            prop_assert_eq!(combine(&shares).unwrap().to_vec(), secret);
        }

        #[test]
        fn division_undoes_multiplication(a in any::<u8>(), b in 1_u8..) {
            prop_assert_eq!(divide(multiply(a, b), b), a);
        }
    }

    #[test]
    fn what_gives_no_secret() {
        let shares = |bytes: &[&[u8]]| -> Vec<Share> {
            bytes.iter().enumerate().map(|(at, share)| (at + 3, Zeroizing::new(share.to_vec()))).collect()
        };
        assert_eq!(combine(&[]), Err(ShareError::TooFew(0)));
        assert_eq!(combine(&shares(&[&[1, 2]])), Err(ShareError::TooFew(1)));
        assert_eq!(combine(&shares(&[&[1], &[2]])), Err(ShareError::TooShort { group: 3, bytes: 1 }));
        let lengths = ShareError::Lengths { one: (3, 2), other: (5, 3) };
        assert_eq!(combine(&shares(&[&[1, 1], &[2, 2], &[3, 3, 3]])), Err(lengths));
        assert_eq!(combine(&shares(&[&[1, 1], &[2, 2], &[2, 1]])), Err(ShareError::Duplicate(3, 5)));
    }

    /// The number zero is the secret itself, as in Vault's own code.
    #[test]
    fn share_zero() {
        let shares = [(1, Zeroizing::new(vec![7, 0])), (2, Zeroizing::new(vec![99, 5]))];
        assert_eq!(combine(&shares).unwrap().as_slice(), [7]);
    }
}
