//! Numbers of bytes as people read them.

/// A number of bytes for people: `16.0 MiB`.
#[must_use]
pub fn show_size(bytes: u64) -> String {
    let units = [(1_u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => {
            // In integers: a tenth is all that is shown.
            let tenths = u128::from(bytes) * 10 / u128::from(*unit);
            format!("{}.{} {name}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (bytes, want) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            (16 << 20, "16.0 MiB"),
            (u64::MAX, "16777215.9 TiB"),
        ] {
            assert_eq!(show_size(bytes), want);
        }
    }
}
