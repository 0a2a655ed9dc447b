//! Who may refer to what in another namespace: pure functions, asked at each reconciliation and when a reference is written. All is
//! denied that nobody gave leave for.

/// What is known of a reference to another namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leave {
    /// Whoever wrote it had the right to get what it names, or a person gave what made the object that leave.
    pub written: bool,
    /// A ReferenceGrant in the other namespace names it.
    pub granted: bool,
}

/// Whether something in namespace `from` of the hub may refer to something in namespace `to`. `across` is false where the
/// operator turned all references across namespaces off.
///
/// # Errors
/// Why not, for a condition: what follows the name of what is referred to.
pub fn may_refer(from: &str, to: &str, across: bool, leave: Leave) -> Result<(), String> {
    if from == to {
        return Ok(());
    }
    if !across {
        return Err("is in another namespace, and the hub runs with --no-cross-namespace-refs".to_owned());
    }
    if leave.written || leave.granted {
        return Ok(());
    }
    Err(format!(
        "is in another namespace: a ReferenceGrant in namespace '{to}' has to allow namespace '{from}' to refer to it, or \
         somebody who may get it has to write the reference"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_to_another_namespace_needs_leave() {
        let none = Leave::default();
        assert_eq!(may_refer("a", "a", false, none), Ok(()));
        let why = may_refer("a", "b", true, none).unwrap_err();
        assert!(why.contains("ReferenceGrant in namespace 'b'"), "{why}");
        for leave in [Leave { written: true, ..none }, Leave { granted: true, ..none }] {
            assert_eq!(may_refer("a", "b", true, leave), Ok(()));
            // The operator's word is the last one.
            let why = may_refer("a", "b", false, leave).unwrap_err();
            assert!(why.contains("--no-cross-namespace-refs"), "{why}");
        }
    }
}
